//! The container image: its command and variables are ones that the program has, and its last stage, built by a builder without a
//! daemon, serves the demo.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use clap::CommandFactory;
use pilothouse::cli::Cli;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    binary::Binary,
    packages::{parse, root, words},
    skipped::skipped,
    stage::DEADLINE,
    systemd::status,
};

/// The variables of the flags of `serve`.
fn twins() -> BTreeSet<String> {
    let command = Cli::command();
    let serve = command.get_subcommands().find(|c| c.get_name() == "serve").unwrap();
    serve.get_arguments().filter_map(|a| Some(a.get_env()?.to_str()?.to_string())).collect()
}

#[test]
fn the_image_starts_the_program_with_flags_that_it_has_and_exposes_its_ports() {
    let file = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let lines: Vec<String> = file.replace("\\\n", " ").lines().map(str::to_string).collect();
    let all = |key: &str| lines.iter().filter_map(|line| line.strip_prefix(key)).collect::<Vec<_>>();
    let twins = twins();
    let mut ports = BTreeSet::new();
    for pair in all("ENV ").iter().flat_map(|line| line.split_whitespace()) {
        let (name, value) = pair.split_once('=').unwrap();
        assert!(twins.contains(name), "no flag has the variable {name}");
        ports.extend(value.strip_prefix(':'));
    }
    let exposed: BTreeSet<&str> = all("EXPOSE ").iter().flat_map(|line| line.split_whitespace()).collect();
    assert_eq!(exposed, ports);
    assert_eq!(exposed, BTreeSet::from(["15010", "15012", "15014", "8080"]));
    let user = all("USER ").pop().unwrap();
    assert!(
        user.split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)),
        "a number, so that runAsNonRoot can be checked"
    );
    let command: Value = serde_json::from_str(all("CMD ").pop().unwrap()).unwrap();
    parse(&words(&command));
    for copied in all("COPY ").iter().filter(|line| !line.starts_with("--from")) {
        let paths: Vec<&str> = copied.split_whitespace().collect();
        for path in &paths[..paths.len() - 1] {
            assert!(root().join(path).exists(), "{path}");
        }
    }
    let folder = words(&command).last().unwrap().clone();
    let copied = lines.iter().any(|line| line.starts_with("COPY config/") && line.ends_with(&folder));
    assert!(copied, "{folder} is in the image");
}

/// A builder with a store of its own.
struct Buildah {
    folder: TempDir,
}

impl Buildah {
    /// The builder, where it is installed and may work.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let [store, run] = ["store", "run"].map(|name| folder.path().join(name));
        let storage = format!("[storage]\ndriver = \"vfs\"\ngraphroot = {store:?}\nrunroot = {run:?}\n");
        fs::write(folder.path().join("storage.conf"), storage).unwrap();
        fs::write(folder.path().join("Empty"), "FROM scratch\nCOPY Empty /\n").unwrap();
        let builder = Self { folder };
        let said = builder.build(builder.folder.path(), "Empty").err();
        if let Some(reason) = &said {
            skipped(&format!("buildah: {}", reason.trim()));
        }
        said.is_none().then_some(builder)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("buildah");
        command.env("CONTAINERS_STORAGE_CONF", self.folder.path().join("storage.conf")).args(arguments);
        command
    }

    fn says(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.command(arguments).output().map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// The image of a file of a folder, by its identity.
    fn build(&self, context: &Path, file: &str) -> Result<String, String> {
        let [file, context] = [context.join(file), context.to_path_buf()].map(|path| path.display().to_string());
        self.says(&["bud", "--quiet", "--isolation", "chroot", "--file", &file, &context])
    }
}

/// Copies a file to the same place below another root.
fn install(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(from, to).unwrap();
}

/// What the first stage leaves in `image`: the program of these tests without its debug information, and since it is not a static
/// one, its libraries.
fn build_stage(context: &Path) {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_pilothouse"));
    let installed = context.join("image/usr/local/bin/pilothouse");
    fs::create_dir_all(installed.parent().unwrap()).unwrap();
    let stripped = Command::new("strip").args(["--strip-debug", "-o"]).args([&installed, &program]).status();
    if !stripped.is_ok_and(|status| status.success()) {
        install(&program, &installed);
    }
    let libraries = Command::new("ldd").arg(&program).output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        install(Path::new(library), &context.join("image").join(&library[1..]));
    }
}

/// The process with this command.
fn process(command: &[String]) -> Option<u32> {
    let line = command.iter().flat_map(|word| [word, "\0"]).collect::<String>();
    let mut ids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    ids.find(|id| fs::read_to_string(format!("/proc/{id}/cmdline")).is_ok_and(|text| text == line))
}

#[test]
fn the_last_stage_of_the_image_serves_the_demo() {
    let Some(buildah) = Buildah::new() else { return };
    let context = tempfile::tempdir().unwrap();
    build_stage(context.path());
    for entry in fs::read_dir(root().join("config/demo")).unwrap() {
        let path = entry.unwrap().path();
        install(&path, &context.path().join(path.strip_prefix(root()).unwrap()));
    }
    let file = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let (_, last) = file.split_once("\nFROM scratch\n").expect("a stage that needs no other image");
    let text = format!("FROM scratch AS build\nCOPY image /image\nFROM scratch\n{last}");
    fs::write(context.path().join("Last"), text).unwrap();
    let image = buildah.build(context.path(), "Last").unwrap();
    let inspected: Value =
        serde_json::from_str(&buildah.says(&["inspect", "--type", "image", &image]).unwrap()).unwrap();
    let config = &inspected["OCIv1"]["config"];
    let start = [words(&config["Entrypoint"]), words(&config["Cmd"])].concat();

    let container = buildah.says(&["from", "--pull-never", &image]).unwrap();
    let mut serve = buildah.command(&["run", "--isolation", "chroot"]);
    for address in ["GRPC", "HTTP", "SECURE_GRPC"] {
        serve.arg(format!("--env=PILOTHOUSE_{address}_ADDR=127.0.0.1:0"));
    }
    serve
        .args(["--env=PILOTHOUSE_MONITORING_ADDR=", "--env=PILOTHOUSE_LOG_FORMAT=json", &container, "--"])
        .args(&start);
    let mut server = Binary::spawn(serve);
    let (_, http) = server.addresses();
    let began = Instant::now();
    while status(http, "/ready") != "HTTP/1.1 200 OK" {
        assert!(began.elapsed() < DEADLINE, "not ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The builder passes no signal on.
    let inside = process(&start).unwrap();
    assert_eq!(fs::metadata(format!("/proc/{inside}")).unwrap().uid(), 1337);
    assert!(Command::new("kill").arg(inside.to_string()).status().unwrap().success());
    assert_eq!(server.ends_within(DEADLINE).code(), Some(0));
}
