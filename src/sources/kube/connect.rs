//! The client of a cluster: from a kubeconfig or from inside, built when it is first needed, built again when it may be the
//! credentials that are wrong.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::Uri;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};
use parking_lot::{Mutex, MutexGuard};
use rustls_pki_types::{CertificateDer, pem::PemObject};

use super::answers::{Answers, Observe};
use crate::{
    model::pem,
    settings::{KubeAccess, KubeSettings, KubeconfigText},
};

/// The time limit of opening a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// A watch that the server does not end in its time is ended by us this much later.
const WATCH_MARGIN: Duration = Duration::from_secs(5);

/// Bytes of a kubeconfig that is read.
const LONGEST_KUBECONFIG: u64 = 16 << 20;

/// Why there is no client.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(String);

/// Makes clients of one cluster.
pub(super) struct Connection {
    access: Mutex<KubeAccess>,
    observe: Observe,
    client: Mutex<Option<Client>>,
}

impl Connection {
    pub(super) fn new(settings: &KubeSettings) -> Self {
        let observe = Observe {
            answers: Arc::default(),
            limit: settings.list_timeout,
            watch_limit: settings.watch_timeout + WATCH_MARGIN,
        };
        Self { access: Mutex::new(settings.access.clone()), observe, client: Mutex::default() }
    }

    /// The server's error.
    pub(super) fn answers(&self) -> &Answers {
        &self.observe.answers
    }

    /// The client; files are read when there is none.
    pub(super) async fn client(&self) -> Result<Client, ConnectError> {
        if let Some(client) = self.lock().clone() {
            return Ok(client);
        }
        let access = self.access.lock().clone();
        let mut config = config(&access).await?;
        // Retries inside the client would hide every failure, and its pauses; time limits of reads would end quiet watches.
        config.default_retry = false;
        config.read_timeout = None;
        config.connect_timeout = Some(CONNECT);
        let builder = ClientBuilder::try_from(config).map_err(|e| ConnectError(e.to_string()))?;
        let client = builder.with_layer(&self.observe).build();
        Ok(self.lock().get_or_insert(client).clone())
    }

    /// The next client is built from the content of the files at that time.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    /// The cluster is reached in another way from now on; watches that run go on until they end.
    pub(super) fn set_access(&self, access: KubeAccess) {
        *self.access.lock() = access;
        self.forget();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock()
    }
}

/// Checks that the files and the context of an access exist and can be read. The server is not asked.
///
/// # Errors
/// [`ConnectError`] with the first thing that is missing.
pub async fn check_access(access: &KubeAccess) -> Result<(), ConnectError> {
    config(access).await.map(drop)
}

async fn config(access: &KubeAccess) -> Result<Config, ConnectError> {
    match access {
        KubeAccess::InCluster { account } => {
            let account = account.clone();
            let read = tokio::task::spawn_blocking(move || in_cluster(&account)).await;
            read.unwrap_or_else(|e| Err(e.to_string()))
                .map_err(|e| ConnectError(format!("in-cluster configuration: {e}")))
        }
        KubeAccess::Text(KubeconfigText(text)) => {
            // A parser's message may quote a credential.
            let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| ConnectError("not a kubeconfig".to_string()))?;
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
            config.map_err(|e| ConnectError(format!("kubeconfig: {e}")))
        }
        KubeAccess::Kubeconfig { path, context } => {
            // After the first line, a parser's error quotes the file, which may hold credentials.
            let wrong = |e: &dyn std::fmt::Display| {
                let text = e.to_string();
                ConnectError(format!("kubeconfig {}: {}", path.display(), text.lines().next().unwrap_or_default()))
            };
            let file: PathBuf = path.clone();
            let read = tokio::task::spawn_blocking(move || {
                check_file(&file)?;
                Kubeconfig::read_from(file).map_err(|e| e.to_string())
            });
            let kubeconfig = read.await.map_err(|e| wrong(&e))?.map_err(|e| wrong(&e))?;
            let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| wrong(&e))
        }
    }
}

/// A kubeconfig is a file, and no long one: a device or a pipe is read for ever.
fn check_file(path: &Path) -> Result<(), String> {
    let file = fs::metadata(path).map_err(|e| e.to_string())?;
    match file.len() {
        _ if !file.is_file() => Err("not a file".to_string()),
        bytes if bytes > LONGEST_KUBECONFIG => Err(format!("{bytes} bytes are more than {LONGEST_KUBECONFIG}")),
        _ => Ok(()),
    }
}

/// The access that Kubernetes gives to a pod: the server in two environment variables, and a folder with the token and the
/// CA of a service account. The library reads both files again while the client lives, for they are replaced before they expire.
fn in_cluster(account: &Path) -> Result<Config, String> {
    let variable = |name: &str| env::var(name).map_err(|_| format!("{name} is not set"));
    let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let url: Uri = format!("https://{host}:{port}").parse().map_err(|e| format!("https://{host}:{port}: {e}"))?;
    let (token, ca) = (account.join("token"), account.join("ca.crt"));
    let at = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    fs::metadata(&token).map_err(|e| at(&token, &e))?;
    let certificates = CertificateDer::pem_file_iter(&ca).map_err(|e| at(&ca, &pem::fault(&e)))?;
    let certificates: Result<Vec<Vec<u8>>, _> = certificates.map(|c| c.map(|c| c.to_vec())).collect();
    let mut config = Config::new(url);
    config.root_cert = Some(certificates.map_err(|e| at(&ca, &pem::fault(&e)))?);
    config.root_cert_file = Some(ca);
    config.auth_info.token_file = Some(token.display().to_string());
    Ok(config)
}
