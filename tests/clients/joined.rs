//! A control plane that issues certificates, and Envoys that join it by tokens.

use std::{
    ffi::OsString,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use serde_json::Value;

use crate::{
    envoy::Launch,
    mesh::{ControlPlane, Envoy, folder},
    network::Machine,
    process::{Process, free_port, scratch, wait_until},
};

/// Settings of the control plane.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings<'a> {
    pub environment: &'a [(&'a str, &'a str)],
    /// The mesh config, if it is not Istio's default.
    pub mesh: Option<&'a Value>,
    pub networks: Option<&'a Value>,
    /// The folder of the certificate authority, if it is not to make its own root.
    pub authority: Option<&'a Path>,
}

/// Writes the files of a new authority of this name to a folder; gives its root.
pub fn plug_in(folder: &Path, name: &str) -> String {
    let day = Duration::from_secs(86_400);
    let material = pilothouse::identity::authority::new_root(name, SystemTime::now(), day).unwrap();
    let root = material.roots.clone();
    for (file, text) in
        [("ca-key.pem", material.key), ("ca-cert.pem", material.certificate), ("root-cert.pem", material.roots)]
    {
        fs::write(folder.join(file), text).unwrap();
    }
    root
}

/// Replaces a file of the authority as editors do: beside it, then by rename.
pub fn replace(authority: &Path, name: &str, text: &str) {
    fs::write(authority.join(".new"), text).unwrap();
    fs::rename(authority.join(".new"), authority.join(name)).unwrap();
}

/// A control plane with a secure listener, its state folder, and the tokens of its machines.
pub struct Mesh {
    pub plane: ControlPlane,
    pub state: PathBuf,
    pub secure: SocketAddr,
    /// The file of the mesh config, where it has one.
    mesh_config: Option<PathBuf>,
    /// The file of the root of its certificates.
    root: PathBuf,
}

impl Mesh {
    /// With these objects (`mesh.yaml`) and this environment.
    pub fn start(text: String, environment: &[(&str, &str)]) -> Self {
        let settings = Settings { environment, ..Settings::default() };
        Self::start_on(&Machine::default(), Ipv4Addr::LOCALHOST.into(), text, settings)
    }

    /// As [`Mesh::start`], on this machine, with the secure listener at this address of it.
    pub fn start_on(machine: &Machine, ip: IpAddr, text: String, settings: Settings<'_>) -> Self {
        let (configs, state, secure_port) = (folder(&[("mesh.yaml", text)]), scratch(), free_port());
        let secure = SocketAddr::new(ip, secure_port);
        let mut arguments: Vec<OsString> = vec![
            "--config-dir".into(),
            configs.clone().into(),
            "--state-dir".into(),
            state.clone().into(),
            "--secure-grpc-addr".into(),
            secure.to_string().into(),
        ];
        let mut mesh_config = None;
        for (flag, content) in [("--meshConfig", settings.mesh), ("--networksConfig", settings.networks)] {
            if let Some(content) = content {
                let file = folder(&[("settings.yaml", content.to_string())]).join("settings.yaml");
                mesh_config = mesh_config.or_else(|| (flag == "--meshConfig").then(|| file.clone()));
                arguments.extend([flag.into(), file.into()]);
            }
        }
        let root = match settings.authority {
            Some(authority) => {
                arguments.extend(["--cacerts-dir".into(), authority.into()]);
                authority.join("root-cert.pem")
            }
            None => state.join("identity/root-cert.pem"),
        };
        let plane = machine.within(|| {
            let plane = ControlPlane::launch_with(configs, &arguments, settings.environment);
            plane.wait_ready();
            plane
        });
        Self { plane, state, secure, mesh_config, root }
    }

    /// Replaces the objects.
    pub fn write(&self, text: &str) {
        self.plane.write("mesh.yaml", text);
    }

    /// Replaces the mesh config.
    pub fn configure(&self, config: &Value) {
        let file = self.mesh_config.as_ref().expect("it has one");
        fs::write(file.with_extension("new"), config.to_string()).unwrap();
        fs::rename(file.with_extension("new"), file).unwrap();
    }

    /// An Envoy that joins by a token of this service account.
    pub fn join(&self, node: &str, account: &str, metadata: &Value) -> Envoy {
        self.join_on(&Machine::default(), node, account, metadata)
    }

    /// As [`Mesh::join`], on this machine, as its sidecar.
    pub fn join_on(&self, machine: &Machine, node: &str, account: &str, metadata: &Value) -> Envoy {
        self.join_with(machine, (node, account, metadata), &|_| ())
    }

    /// As [`Mesh::join_on`], with changes of the bootstrap.
    pub fn join_with(
        &self,
        machine: &Machine,
        (node, account, metadata): (&str, &str, &Value),
        bootstrap: &dyn Fn(&mut Value),
    ) -> Envoy {
        let (token, root) = (self.token(account), &self.root);
        let address = self.secure.to_string();
        let arguments = ["--root-cert".as_ref(), root.as_os_str(), "--token-file".as_ref(), token.as_os_str()];
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let ports = [self.secure.port()];
        let launch = Launch::new(&ports, node, metadata);
        Launch { host, arguments: &arguments, machine: machine.clone(), bootstrap, ..launch }.start()
    }

    /// A process that keeps the certificate of this service account in a folder, once there is one.
    pub fn keep_certificate(&self, account: &str, lifetime: &str) -> (Process, PathBuf) {
        let folder = scratch().join("certs");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(["certificate", "--watch", "--ttl", lifetime, "--xds-address", &self.secure.to_string()]);
        command.arg("--root-cert").arg(&self.root).arg("--token-file").arg(self.token(account));
        let process = Process::start("certificate", command.arg("--certs-dir").arg(&folder));
        wait_until("a certificate", || if folder.join("key.pem").exists() { Ok(()) } else { Err(process.tail()) });
        (process, folder)
    }

    /// The file of a token for this service account.
    pub fn token(&self, account: &str) -> PathBuf {
        token_of(&self.state, account)
    }
}

/// The file of a token for this service account, of the control plane with this state folder.
pub fn token_of(state: &Path, account: &str) -> PathBuf {
    let mut create = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    create.args(["token", "create", "--namespace", "shop", "--service-account", account, "--state-dir"]);
    let created = create.arg(state).output().unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let token = scratch().join("token");
    fs::write(&token, created.stdout).unwrap();
    token
}
