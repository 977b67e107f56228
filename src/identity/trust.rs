//! Where the authority and the server's certificate come from, and both together as they are in force.
//!
//! | authority | from |
//! |---|---|
//! | plugged in | the files of Istio's `cacerts`: `ca-cert.pem`, `ca-key.pem`, `root-cert.pem`, `cert-chain.pem`, `ca-crl.pem` |
//! | of the cluster | the Secret `cacerts`, else the self-made root in `istio-ca-secret` (see [`super::cluster_root`]) |
//! | self-made | a root in the state folder, made at the first start; without such a folder in memory, for this process only |
//!
//! Files are read in one go and looked at as a whole: while they do not fit together, the last good authority stays.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use sha2::{Digest, Sha256};
use tokio_rustls::rustls::{ServerConfig, server::danger::ClientCertVerifier};

use super::{
    authority::{self, Authority, AuthorityError, IssueError, KeyAndCertificate, Material},
    cluster_root::Found,
    files,
    tls::{self, Clients, SERVER_LIFETIME, TlsError},
};
use crate::{
    model::features::CompliancePolicy,
    settings::{ListenerTls, ServerCertificateFiles},
};

/// Bytes of one file with certificates or a key.
const MAX_FILE: u64 = 1 << 20;

/// Where the authority comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Files of `cacerts`.
    PluggedIn,
    /// The Secret `cacerts` of the cluster.
    PluggedInSecret,
    /// The Secret `istio-ca-secret` of the cluster, or its copy in the state folder.
    ClusterSecret,
    /// A root in the state folder.
    StateFolder,
    /// A root in memory: a restart makes another.
    Memory,
}

/// Settings of the authority and of the secure listener.
#[derive(Debug, Clone, Default)]
pub struct TrustSettings {
    /// The folder of `cacerts`.
    pub cacerts: Option<PathBuf>,
    /// The state folder.
    pub state_folder: Option<PathBuf>,
    /// The organization of a self-made root: the trust domain.
    pub organization: String,
    /// Lifetime of a self-made root (`CITADEL_SELF_SIGNED_CA_CERT_TTL`).
    pub root_lifetime: Duration,
    /// Names and addresses of the server in a certificate that the authority issues for it.
    pub server_names: Vec<String>,
    /// The server's certificate, where it is not issued here.
    pub server_files: Option<ServerCertificateFiles>,
    /// Versions and ciphers of the secure listener.
    pub tls: ListenerTls,
    /// Compliance of the secure listener.
    pub compliance: CompliancePolicy,
    /// Lists of revoked certificates are left aside.
    pub ignores_revocation: bool,
}

/// Why there is no authority or no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file cannot be read or written.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    File(PathBuf, io::Error),
    /// The authority's parts do not fit.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Authority(PathBuf, AuthorityError),
    /// No root can be made.
    #[error("no root can be made: {0}")]
    NewRoot(AuthorityError),
    /// The server's certificate cannot be issued.
    #[error("the server's certificate: {0}")]
    Issue(#[from] IssueError),
    /// The cluster does not give its authority, and none is kept.
    #[error("the authority of the cluster: {0}")]
    Cluster(String),
    /// The listener's parts do not fit.
    #[error("{0}")]
    Tls(#[from] TlsError),
}

/// The authority and the TLS configuration that are in force together.
#[derive(Debug, Clone)]
pub struct Trust {
    /// The authority.
    pub authority: Arc<Authority>,
    /// Where it comes from.
    pub origin: Origin,
    /// TLS of the secure listener.
    pub server: Arc<ServerConfig>,
    /// Verifies the certificates of clients, as the handshake does.
    pub clients: Arc<dyn ClientCertVerifier>,
    /// When the server's own certificate is to be issued anew; `None` where it comes from files.
    renew_server: Option<SystemTime>,
    /// Hash of the files that all this was made of.
    made_of: [u8; 32],
}

/// The content of all files.
struct Read {
    material: Material,
    origin: Origin,
    /// The place to name in errors.
    place: PathBuf,
    server: Option<KeyAndChain>,
    client_roots: String,
}

struct KeyAndChain {
    chain: String,
    key: String,
}

impl Read {
    fn hash(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let server = self.server.as_ref().map(|server| [&server.chain, &server.key]);
        let Material { certificate, key, chain, roots, revoked } = &self.material;
        for part in [certificate, key, chain, roots, revoked]
            .into_iter()
            .chain([&self.client_roots])
            .chain(server.into_iter().flatten())
        {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        hash.finalize().into()
    }
}

impl Trust {
    /// Reads all files and makes the next trust of them, or keeps `last` where nothing has changed. `of_cluster` comes
    /// before a self-made root, and `memory` holds one without a folder. Reads files: not for async threads.
    ///
    /// # Errors
    /// [`TrustError`]; the last good one stays in force then.
    pub(super) fn load(
        settings: &TrustSettings,
        of_cluster: Option<Found>,
        memory: &mut Option<Material>,
        last: Option<&Arc<Self>>,
        now: SystemTime,
    ) -> Result<Arc<Self>, TrustError> {
        let read = read(settings, of_cluster, memory, now)?;
        let made_of = read.hash();
        let is_same = |last: &&Arc<Self>| last.made_of == made_of && last.renew_server.is_none_or(|at| now < at);
        if let Some(last) = last.filter(is_same) {
            return Ok(last.clone());
        }
        let authority =
            Authority::new(&read.material, now).map_err(|e| TrustError::Authority(read.place.clone(), e))?;
        let client_roots = authority.roots().to_string() + "\n" + &read.client_roots;
        let (chain, key, renew_server) = match read.server {
            Some(server) => (server.chain, server.key, None),
            None => {
                let KeyAndCertificate { certificate, key } =
                    authority.issue_server(&settings.server_names, SERVER_LIFETIME, now)?;
                let half = certificate.valid_for(now) / 2;
                (certificate.chain, key, Some(now + half))
            }
        };
        let clients = Clients { roots: &client_roots, revoked: authority.revoked() };
        let (server, clients) = tls::server_config(&chain, &key, &clients, &settings.tls, settings.compliance)?;
        let authority = Arc::new(authority);
        Ok(Arc::new(Self { authority, origin: read.origin, server, clients, renew_server, made_of }))
    }
}

fn read(
    settings: &TrustSettings,
    of_cluster: Option<Found>,
    memory: &mut Option<Material>,
    now: SystemTime,
) -> Result<Read, TrustError> {
    let (mut material, origin, place) = match (&settings.cacerts, of_cluster, &settings.state_folder) {
        (Some(folder), ..) => (plugged_in(folder)?, Origin::PluggedIn, folder.clone()),
        (None, Some(found), _) => {
            let origin = if found.is_plugged_in { Origin::PluggedInSecret } else { Origin::ClusterSecret };
            (found.material, origin, found.place)
        }
        (None, None, Some(folder)) => {
            let folder = folder.join(files::FOLDER);
            (of_state_folder(&folder, settings, now)?, Origin::StateFolder, folder)
        }
        (None, None, None) => {
            let material = match memory {
                Some(material) => material.clone(),
                None => new_root(settings, now)?,
            };
            let material = renewed(&material, settings, now)?.unwrap_or(material);
            *memory = Some(material.clone());
            (material, Origin::Memory, PathBuf::from("memory"))
        }
    };
    if settings.ignores_revocation {
        material.revoked.clear();
    }
    let server = settings
        .server_files
        .as_ref()
        .map(|files| Ok::<_, TrustError>(KeyAndChain { chain: text(&files.certificate)?, key: text(&files.key)? }));
    let client_roots = settings.server_files.as_ref().and_then(|files| files.client_roots.as_ref());
    let client_roots = client_roots.map(|path| text(path)).transpose()?.unwrap_or_default();
    Ok(Read { material, origin, place, server: server.transpose()?, client_roots })
}

fn text(path: &Path) -> Result<String, TrustError> {
    let read = || {
        let length = fs::metadata(path)?.len();
        if length > MAX_FILE {
            return Err(io::Error::other(format!("more than {MAX_FILE} bytes")));
        }
        fs::read_to_string(path)
    };
    read().map_err(|error| TrustError::File(path.to_path_buf(), error))
}

fn optional(path: &Path) -> Result<Option<String>, TrustError> {
    match text(path) {
        Ok(text) => Ok(Some(text)),
        Err(TrustError::File(_, error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn plugged_in(folder: &Path) -> Result<Material, TrustError> {
    Ok(Material {
        certificate: text(&folder.join("ca-cert.pem"))?,
        key: text(&folder.join("ca-key.pem"))?,
        roots: text(&folder.join("root-cert.pem"))?,
        chain: optional(&folder.join("cert-chain.pem"))?.unwrap_or_default(),
        revoked: optional(&folder.join("ca-crl.pem"))?.unwrap_or_default(),
    })
}

fn new_root(settings: &TrustSettings, now: SystemTime) -> Result<Material, TrustError> {
    authority::new_root(&settings.organization, now, settings.root_lifetime).map_err(TrustError::NewRoot)
}

/// The same root with a new end, where the old one is near.
fn renewed(material: &Material, settings: &TrustSettings, now: SystemTime) -> Result<Option<Material>, TrustError> {
    if !authority::is_ending(&material.certificate, settings.root_lifetime, now) {
        return Ok(None);
    }
    let renewed = authority::renewed_root(material, &settings.organization, now, settings.root_lifetime);
    renewed.map(Some).map_err(TrustError::NewRoot)
}

fn of_state_folder(folder: &Path, settings: &TrustSettings, now: SystemTime) -> Result<Material, TrustError> {
    let (certificate, key) = (folder.join("root-cert.pem"), folder.join("root-key.pem"));
    if optional(&key)?.is_none() {
        let new = new_root(settings, now)?;
        match files::write_new(&key, new.key.as_bytes()) {
            Ok(()) => files::replace(&certificate, new.certificate.as_bytes())
                .map_err(|e| TrustError::File(certificate.clone(), e))?,
            // Another process was first.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(TrustError::File(key, error)),
        }
    }
    let key = text(&key)?;
    let kept = optional(&certificate)?;
    let mut material = match kept {
        Some(kept) => Material { roots: kept.clone(), certificate: kept, key, ..Material::default() },
        // The process ended between the two files: the key is the root's identity, and its certificate is made again.
        None => {
            let bare = Material { key, ..Material::default() };
            let made = authority::renewed_root(&bare, &settings.organization, now, settings.root_lifetime);
            let made = made.map_err(TrustError::NewRoot)?;
            files::replace(&certificate, made.certificate.as_bytes())
                .map_err(|e| TrustError::File(certificate.clone(), e))?;
            made
        }
    };
    if let Some(renewed) = renewed(&material, settings, now)? {
        files::replace(&certificate, renewed.certificate.as_bytes())
            .map_err(|e| TrustError::File(certificate.clone(), e))?;
        material = renewed;
    }
    Ok(material)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn settings() -> TrustSettings {
        TrustSettings {
            organization: "cluster.local".into(),
            root_lifetime: 100 * DAY,
            server_names: vec!["localhost".into(), "127.0.0.1".into()],
            ..TrustSettings::default()
        }
    }

    fn load(settings: &TrustSettings, last: Option<&Arc<Trust>>, at: SystemTime) -> Result<Arc<Trust>, TrustError> {
        Trust::load(settings, None, &mut None, last, at)
    }

    #[test]
    fn a_root_in_the_state_folder_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let settings = TrustSettings { state_folder: Some(folder.path().into()), ..settings() };
        let first = load(&settings, None, now()).unwrap();
        let second = load(&settings, None, now()).unwrap();
        assert_eq!(first.authority.roots(), second.authority.roots());
        assert_eq!(first.origin, Origin::StateFolder);
        let again = load(&settings, Some(&first), now()).unwrap();
        assert!(Arc::ptr_eq(&first, &again), "nothing has changed");
    }

    #[test]
    fn a_root_near_its_end_is_renewed_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let settings = TrustSettings { state_folder: Some(folder.path().into()), ..settings() };
        let first = load(&settings, None, now()).unwrap();
        let early = load(&settings, None, now() + 70 * DAY).unwrap();
        assert_eq!(first.authority.roots(), early.authority.roots());
        let late = load(&settings, None, now() + 85 * DAY).unwrap();
        assert_ne!(first.authority.roots(), late.authority.roots());
        assert!(late.authority.not_after() > now() + 180 * DAY);
        // A peer with the old root only still accepts new certificates: name and key are the same.
        let at = now() + 86 * DAY;
        let identity = crate::model::Identity::parse("spiffe://cluster.local/ns/a/sa/b").unwrap();
        let issued = late.authority.issue(&identity, DAY, at).unwrap();
        let leaf = tls::certificates(&issued.certificate.chain, "").unwrap().remove(0);
        let root = tls::certificates(first.authority.roots(), "").unwrap().remove(0);
        let (_, leaf) = x509_parser::parse_x509_certificate(&leaf).unwrap();
        let (_, root) = x509_parser::parse_x509_certificate(&root).unwrap();
        assert_eq!(leaf.issuer(), root.subject());
        assert!(leaf.verify_signature(Some(root.public_key())).is_ok());
    }

    #[test]
    fn a_root_whose_certificate_was_lost_is_made_again_from_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let settings = TrustSettings { state_folder: Some(folder.path().into()), ..settings() };
        load(&settings, None, now()).unwrap();
        let key = fs::read(folder.path().join("identity/root-key.pem")).unwrap();
        fs::remove_file(folder.path().join("identity/root-cert.pem")).unwrap();
        load(&settings, None, now()).unwrap();
        assert_eq!(fs::read(folder.path().join("identity/root-key.pem")).unwrap(), key);
    }

    #[test]
    fn a_root_in_memory_stays_as_long_as_the_process() {
        let mut memory = None;
        let first = Trust::load(&settings(), None, &mut memory, None, now()).unwrap();
        let second = Trust::load(&settings(), None, &mut memory, None, now()).unwrap();
        assert_eq!(first.authority.roots(), second.authority.roots());
    }

    fn plug_in(folder: &Path, material: &Material) {
        fs::write(folder.join("ca-cert.pem"), &material.certificate).unwrap();
        fs::write(folder.join("ca-key.pem"), &material.key).unwrap();
        fs::write(folder.join("root-cert.pem"), &material.roots).unwrap();
    }

    #[test]
    fn plugged_in_files_are_read_whole_and_named_when_they_do_not_fit() {
        let folder = tempfile::tempdir().unwrap();
        let settings = TrustSettings { cacerts: Some(folder.path().into()), ..settings() };
        let told = || load(&settings, None, now()).unwrap_err().to_string();
        assert!(told().contains("ca-cert.pem"), "{}", told());
        let (one, two) = (new_root(&settings, now()).unwrap(), new_root(&settings, now()).unwrap());
        plug_in(folder.path(), &one);
        let first = load(&settings, None, now()).unwrap();
        assert_eq!(first.authority.roots().trim(), one.roots.trim());
        fs::write(folder.path().join("ca-cert.pem"), &two.certificate).unwrap();
        assert!(told().contains("private key is not"), "{}", told());
        plug_in(folder.path(), &two);
        let second = load(&settings, Some(&first), now()).unwrap();
        assert_eq!(second.authority.roots().trim(), two.roots.trim());
    }

    #[test]
    fn the_servers_certificate_is_issued_anew_at_half_its_life() {
        let mut memory = None;
        let first = Trust::load(&settings(), None, &mut memory, None, now()).unwrap();
        let soon = Trust::load(&settings(), None, &mut memory, Some(&first), now() + DAY).unwrap();
        assert!(Arc::ptr_eq(&first, &soon));
        let later = Trust::load(&settings(), None, &mut memory, Some(&first), now() + 16 * DAY).unwrap();
        assert!(!Arc::ptr_eq(&first.server, &later.server));
    }
}
