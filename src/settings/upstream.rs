//! Settings of upstreams: other control planes from which config objects are read over xDS.

use std::{path::PathBuf, time::Duration};

/// The upstreams, and the settings of their streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// `HOST:PORT` of each upstream; of an object that several have, the first one's wins. They come after the folders and the
    /// cluster, and are unused if the mesh config lists `configSources`.
    pub addresses: Vec<String>,
    /// Whether to use incremental (delta) xDS instead of state of the world.
    pub delta: bool,
    /// Requested version of Istio's kinds, where a kind has it (`v1alpha3`); empty for the newest of each.
    pub api_version: String,
    /// Whether to use TLS even without the files below.
    pub tls: bool,
    /// CA certificates (PEM) that verify the upstream's certificate; `None` for the system's.
    pub ca: Option<PathBuf>,
    /// Client certificate chain (PEM).
    pub cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM).
    pub key: Option<PathBuf>,
    /// Server name that the upstream's certificate must have; `None` for the host of the address.
    pub server_name: Option<String>,
    /// File with a bearer token; read again for each connection.
    pub token_file: Option<PathBuf>,
    /// Maximum length of a received message, in bytes.
    pub max_message_bytes: usize,
    /// Maximum number of objects from one upstream; more are refused.
    pub max_objects: usize,
    /// First pause before a reconnect; it doubles up to half a minute.
    pub first_pause: Duration,
    /// The time since the last response of an open stream after which a type without a response counts as unknown to the
    /// upstream.
    pub last_answer: Duration,
    /// Namespace in the node sent to the upstream; empty for the mesh's root namespace.
    pub namespace: String,
    /// Name in the node sent to the upstream.
    pub name: String,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            delta: false,
            api_version: String::new(),
            tls: false,
            ca: None,
            cert: None,
            key: None,
            server_name: None,
            token_file: None,
            max_message_bytes: 64 << 20,
            max_objects: 250_000,
            first_pause: Duration::from_millis(500),
            last_answer: Duration::from_secs(5),
            namespace: String::new(),
            name: "pilothouse".to_string(),
        }
    }
}

/// Storage of last good content, which is served at a start without reachable sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSettings {
    /// Folder of the storage; `None` disables it.
    pub folder: Option<PathBuf>,
    /// The time that a source has to deliver before its last good content is served.
    pub grace: Duration,
    /// Maximum number of bytes per source; more are neither written nor read.
    pub max_bytes: u64,
    /// The time without changes before content is written.
    pub quiet: Duration,
}

impl Default for StateSettings {
    fn default() -> Self {
        Self { folder: None, grace: Duration::from_secs(5), max_bytes: 1 << 30, quiet: Duration::from_secs(2) }
    }
}
