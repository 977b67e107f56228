//! `pilothouse bug-report`: everything that a running server tells about itself, in one archive and without secrets.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Args;
use flate2::{Compression, write::GzEncoder};
use serde_json::Value;

use super::{
    Refusal,
    http::{ServerArgs, quoted},
    output::print,
    redact::{holds_key, redact},
};

/// Pages that are about one proxy or object; they need a name.
const OF_ONE: [&str; 6] = ["config_dump", "describez", "ecdsz", "edsz", "ndsz", "sidecarz"];
/// Pages outside of the list of debug pages: path, name in the archive.
const OTHERS: [(&str, &str); 4] =
    [("/version", "version.txt"), ("/ready", "ready.txt"), ("/metrics", "metrics.txt"), ("/scopej/", "scopes.json")];

/// Arguments of `bug-report`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  pilothouse bug-report --archive report.tar.gz")]
pub struct BugReportArgs {
    /// The archive to write, which must not exist; `-` is standard output.
    #[arg(long, env = "PILOTHOUSE_ARCHIVE", default_value = "pilothouse-bug-report.tar.gz", value_name = "FILE")]
    pub archive: PathBuf,
    /// Most connected proxies of which the configuration that they were sent is part of the report.
    #[arg(long, env = "PILOTHOUSE_MAX_PROXIES", default_value_t = 50, value_name = "N")]
    pub max_proxies: usize,
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Gathers the report and writes it.
///
/// # Errors
/// A server that does not answer, an archive that cannot be written.
pub fn run(args: BugReportArgs) -> anyhow::Result<ExitCode> {
    let is_output = args.archive.to_str() == Some("-");
    if !is_output && args.archive.exists() {
        return Err(Refusal(format!("--archive {}: exists already", args.archive.display())).into());
    }
    let files = gather(&args)?;
    let bytes = archive(&files)?;
    if is_output {
        let mut output = std::io::stdout().lock();
        output.write_all(&bytes)?;
        output.flush()?;
    } else {
        write(&args.archive, &bytes)
            .map_err(|error| Refusal(format!("--archive {}: {error}", args.archive.display())))?;
        print(&format!("{} files in {}\n", files.len(), args.archive.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Readable for its owner alone: a report names the hosts of a mesh.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The files of the report: name and content. A page that fails is a file with the reason.
fn gather(args: &BugReportArgs) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let list = args.server.fetch("/debug/list")?;
    let about = format!("pilothouse {}\nserver: {}\n", env!("CARGO_PKG_VERSION"), args.server.http_addr);
    let mut files = vec![("command.txt".to_string(), about.into_bytes())];
    files.extend(OTHERS.iter().map(|(path, name)| page(&args.server, path, name)));
    for path in list.as_array().into_iter().flatten().filter_map(Value::as_str) {
        let name = path.rsplit('/').next().unwrap_or_default();
        if !OF_ONE.contains(&name) {
            files.push(page(&args.server, path, &format!("debug/{}.json", safe(name))));
        }
    }
    let proxies = args.server.fetch("/debug/syncz").unwrap_or_default();
    let ids = proxies.as_array().into_iter().flatten().filter_map(|proxy| proxy["connection_id"].as_str());
    for id in ids.take(args.max_proxies) {
        let path = format!("/debug/config_dump?proxyID={}", quoted(id));
        files.push(page(&args.server, &path, &format!("proxies/{}.json", safe(id))));
    }
    Ok(files)
}

fn page(server: &ServerArgs, path: &str, name: &str) -> (String, Vec<u8>) {
    match server.ask("GET", path, "") {
        Ok(answer) if [200, 503].contains(&answer.status) => (name.to_string(), without_secrets(&answer.body)),
        Ok(answer) => (format!("{name}.error"), format!("the server answered {}\n", answer.status).into_bytes()),
        Err(error) => (format!("{name}.error"), format!("{error:#}\n").into_bytes()),
    }
}

/// A page as JSON without secrets; another text line by line.
fn without_secrets(body: &[u8]) -> Vec<u8> {
    if let Ok(mut value) = serde_json::from_slice::<Value>(body) {
        redact(&mut value);
        return serde_json::to_vec_pretty(&value).unwrap_or_default();
    }
    let text = String::from_utf8_lossy(body);
    if holds_key(&text) { b"[redacted]\n".to_vec() } else { text.into_owned().into_bytes() }
}

/// A name of a file that leads nowhere else.
fn safe(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).take(200).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}

fn archive(files: &[(String, Vec<u8>)]) -> std::io::Result<Vec<u8>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now);
        archive.append_data(&mut header, format!("pilothouse-bug-report/{name}"), content.as_slice())?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_stay_in_the_archive() {
        assert_eq!(safe("web.shop-17"), "web.shop-17");
        assert_eq!(safe("../../etc/passwd"), "_.._.._etc_passwd");
    }

    #[test]
    fn no_text_with_a_key_is_kept() {
        let text = without_secrets(b"a\n-----BEGIN PRIVATE KEY-----\nhush\n");
        assert_eq!(text, b"[redacted]\n");
        assert_eq!(without_secrets(b"pilot_xds 3\n"), b"pilot_xds 3\n");
    }
}
