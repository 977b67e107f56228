//! The authority's material in a cluster: the Secret `cacerts` of Istio's users, else `istio-ca-secret`, which is made where it
//! is missing. Every process of the mesh issues below the same root this way.
//!
//! With a state folder the last good material is kept there as well: the process starts without the cluster.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::{FutureExt, future::BoxFuture};

use super::{
    authority::{self, Material},
    files,
};
use crate::sources::{
    WriteError,
    kube::{KubeWriter, SecretContent},
};

/// The Secret of a plugged-in authority.
const PLUGGED_IN: &str = "cacerts";
/// The Secret of a self-made root, and its type.
const SELF_MADE: &str = "istio-ca-secret";
const SELF_MADE_TYPE: &str = "istio.io/ca-root";
/// The folder inside that of identities which keeps the last good material.
const KEPT: &str = "of-cluster";
/// The same in each form: Secrets of the cluster and files.
const CERTIFICATE: &str = "ca-cert.pem";
const KEY: &str = "ca-key.pem";
const ROOTS: &str = "root-cert.pem";
const CHAIN: &str = "cert-chain.pem";
const REVOKED: &str = "ca-crl.pem";
/// Trials to be the one that makes or renews the root.
const TRIALS: usize = 3;

/// Keeps Secrets of the control plane's namespace.
pub trait SecretStore: Send + Sync {
    /// Reads one; `None` when there is none.
    fn read(&self, name: &'static str) -> BoxFuture<'static, Result<Option<SecretContent>, WriteError>>;

    /// Writes one over the version that was read, or creates it.
    fn write(
        &self,
        name: &'static str,
        kind: &'static str,
        content: SecretContent,
    ) -> BoxFuture<'static, Result<(), WriteError>>;
}

impl SecretStore for KubeWriter {
    fn read(&self, name: &'static str) -> BoxFuture<'static, Result<Option<SecretContent>, WriteError>> {
        let writer = self.clone();
        async move { writer.read_secret(name).await }.boxed()
    }

    fn write(
        &self,
        name: &'static str,
        kind: &'static str,
        content: SecretContent,
    ) -> BoxFuture<'static, Result<(), WriteError>> {
        let writer = self.clone();
        async move { writer.write_secret(name, kind, content).await }.boxed()
    }
}

/// Material of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) material: Material,
    /// It is a plugged-in authority's.
    pub(super) is_plugged_in: bool,
    /// The place to name in errors.
    pub(super) place: PathBuf,
}

/// The authority's Secrets of a cluster.
#[derive(Clone)]
pub struct ClusterRoot {
    /// Reads and writes them.
    pub store: Arc<dyn SecretStore>,
    /// The state folder.
    pub state_folder: Option<PathBuf>,
    /// The organization of a self-made root: the trust domain.
    pub organization: String,
    /// Lifetime of a self-made root.
    pub root_lifetime: Duration,
}

impl ClusterRoot {
    /// Keeps material that made an authority, for a start without the cluster. Writes files: not for async threads.
    pub(super) fn keep(&self, material: &Material) {
        if let Some(Err(error)) = self.kept_folder().map(|folder| keep(&folder, material)) {
            tracing::warn!(%error, "the authority of the cluster is not kept in the state folder");
        }
    }

    /// The material that was last kept.
    pub(super) fn kept(&self) -> Option<Found> {
        let folder = self.kept_folder()?;
        let part = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        let material = Material {
            certificate: part(CERTIFICATE)?,
            key: part(KEY)?,
            roots: part(ROOTS)?,
            chain: part(CHAIN).unwrap_or_default(),
            revoked: part(REVOKED).unwrap_or_default(),
        };
        Some(Found { material, is_plugged_in: false, place: folder })
    }

    fn kept_folder(&self) -> Option<PathBuf> {
        Some(self.state_folder.as_ref()?.join(files::FOLDER).join(KEPT))
    }

    /// The material of the cluster.
    ///
    /// # Errors
    /// [`WriteError`] when the cluster gives none; whether the material makes an authority is not checked here.
    pub(super) async fn look(&self, now: SystemTime) -> Result<Found, WriteError> {
        if let Some(material) = self.store.read(PLUGGED_IN).await?.and_then(|content| material(&content)) {
            return Ok(Found { material, is_plugged_in: true, place: secret(PLUGGED_IN) });
        }
        let found = |material| Found { material, is_plugged_in: false, place: secret(SELF_MADE) };
        let mut last = WriteError::Conflict;
        for _ in 0..TRIALS {
            let content = self.store.read(SELF_MADE).await?;
            let version = content.as_ref().map(|content| content.version.clone()).unwrap_or_default();
            let stands = content.as_ref().and_then(material);
            if content.is_some() && stands.is_none() {
                return Err(WriteError::Other(format!("Secret {SELF_MADE} has no {CERTIFICATE} and {KEY}")));
            }
            let is_ending = |material: &Material| authority::is_ending(&material.certificate, self.root_lifetime, now);
            let new = match &stands {
                Some(material) if !is_ending(material) => return Ok(found(material.clone())),
                Some(material) => authority::renewed_root(material, &self.organization, now, self.root_lifetime),
                None => authority::new_root(&self.organization, now, self.root_lifetime),
            };
            let new = new.map_err(|e| WriteError::Other(format!("Secret {SELF_MADE}: no root can be made: {e}")))?;
            match self.store.write(SELF_MADE, SELF_MADE_TYPE, content_of(&new, version)).await {
                Ok(()) => return Ok(found(new)),
                // Another process was first: its root is the mesh's.
                Err(error @ (WriteError::Conflict | WriteError::Gone)) => last = error,
                // A root that cannot be renewed serves to its end.
                Err(error) => return stands.map(found).ok_or(error),
            }
        }
        Err(last)
    }
}

fn secret(name: &str) -> PathBuf {
    PathBuf::from(format!("Secret {name}"))
}

fn material(content: &SecretContent) -> Option<Material> {
    let part = |name: &str| content.data.get(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let certificate = part(CERTIFICATE).filter(|text| !text.is_empty())?;
    Some(Material {
        key: part(KEY)?,
        roots: part(ROOTS).filter(|text| !text.is_empty()).unwrap_or_else(|| certificate.clone()),
        chain: part(CHAIN).unwrap_or_default(),
        revoked: part(REVOKED).unwrap_or_default(),
        certificate,
    })
}

fn content_of(material: &Material, version: String) -> SecretContent {
    let part = |name: &str, text: &str| (name.to_string(), text.as_bytes().to_vec());
    let data = BTreeMap::from([
        part(CERTIFICATE, &material.certificate),
        part(KEY, &material.key),
        part(ROOTS, &material.roots),
    ]);
    SecretContent { data, version }
}

fn keep(folder: &std::path::Path, material: &Material) -> std::io::Result<()> {
    let parts = [
        (CERTIFICATE, &material.certificate),
        (KEY, &material.key),
        (ROOTS, &material.roots),
        (CHAIN, &material.chain),
        (REVOKED, &material.revoked),
    ];
    for (name, text) in parts {
        let path = folder.join(name);
        if std::fs::read(&path).is_ok_and(|kept| kept == text.as_bytes()) {
            continue;
        }
        files::replace(&path, text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    /// A store in memory; versions count writes.
    #[derive(Default)]
    struct Memory {
        secrets: Mutex<BTreeMap<&'static str, SecretContent>>,
        /// The next read of a missing Secret finds that another process has just made it.
        races: Mutex<Option<SecretContent>>,
        is_away: std::sync::atomic::AtomicBool,
    }

    impl Memory {
        fn put(&self, name: &'static str, content: SecretContent) {
            self.secrets.lock().unwrap().insert(name, content);
        }
    }

    impl SecretStore for Arc<Memory> {
        fn read(&self, name: &'static str) -> BoxFuture<'static, Result<Option<SecretContent>, WriteError>> {
            let found = self.secrets.lock().unwrap().get(name).cloned();
            let is_away = self.is_away.load(std::sync::atomic::Ordering::SeqCst);
            async move { if is_away { Err(WriteError::Unreachable("away".into())) } else { Ok(found) } }.boxed()
        }

        fn write(
            &self,
            name: &'static str,
            kind: &'static str,
            mut content: SecretContent,
        ) -> BoxFuture<'static, Result<(), WriteError>> {
            assert_eq!(kind, SELF_MADE_TYPE);
            if let Some(other) = self.races.lock().unwrap().take() {
                self.put(name, other);
            }
            let mut secrets = self.secrets.lock().unwrap();
            let held = secrets.get(name).map(|held| held.version.clone()).unwrap_or_default();
            let written = if held == content.version { Ok(()) } else { Err(WriteError::Conflict) };
            if written.is_ok() {
                content.version = format!("{}1", content.version);
                secrets.insert(name, content);
            }
            async move { written }.boxed()
        }
    }

    fn root(store: &Arc<Memory>, folder: Option<PathBuf>) -> ClusterRoot {
        let store = Arc::new(store.clone());
        ClusterRoot { store, state_folder: folder, organization: "td".into(), root_lifetime: 100 * DAY }
    }

    #[tokio::test]
    async fn the_first_process_makes_the_root_and_all_have_it() {
        let store = Arc::new(Memory::default());
        let now = SystemTime::now();
        let first = root(&store, None).look(now).await.unwrap();
        let second = root(&store, None).look(now).await.unwrap();
        assert_eq!(first, second);
        authority::Authority::new(&first.material, now).unwrap();
        let later = root(&store, None).look(now + 85 * DAY).await.unwrap();
        assert_eq!(later.material.key, first.material.key, "renewed with its key");
        assert_ne!(later.material.certificate, first.material.certificate);
    }

    #[tokio::test]
    async fn of_two_processes_at_once_one_makes_it() {
        let store = Arc::new(Memory::default());
        let now = SystemTime::now();
        let other = authority::new_root("td", now, 100 * DAY).unwrap();
        *store.races.lock().unwrap() = Some(content_of(&other, "7".into()));
        assert_eq!(root(&store, None).look(now).await.unwrap().material, other);
    }

    #[tokio::test]
    async fn a_plugged_in_authority_comes_before_the_self_made_and_is_not_written() {
        let store = Arc::new(Memory::default());
        let now = SystemTime::now();
        let plugged = authority::new_root("other", now, DAY).unwrap();
        store.put(PLUGGED_IN, content_of(&plugged, "1".into()));
        let found = root(&store, None).look(now).await.unwrap();
        assert_eq!((found.material, found.is_plugged_in), (plugged, true));
        assert_eq!(store.secrets.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn the_last_good_material_is_kept_for_a_start_without_the_cluster() {
        let store = Arc::new(Memory::default());
        let folder = tempfile::tempdir().unwrap();
        let root = root(&store, Some(folder.path().to_path_buf()));
        assert_eq!(root.kept(), None);
        let found = root.look(SystemTime::now()).await.unwrap();
        root.keep(&found.material);
        store.is_away.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(root.look(SystemTime::now()).await, Err(WriteError::Unreachable("away".into())));
        assert_eq!(root.kept().unwrap().material, found.material);
        store.is_away.store(false, std::sync::atomic::Ordering::SeqCst);
        store.put(SELF_MADE, SecretContent { version: "3".into(), ..SecretContent::default() });
        let error = root.look(SystemTime::now()).await.unwrap_err().to_string();
        assert!(error.contains("istio-ca-secret"), "{error}");
    }
}
