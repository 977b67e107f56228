//! Settings of upstreams: other control planes whose config objects are read over xDS.

use std::{path::PathBuf, time::Duration};

/// Upstreams, and how each of them is talked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// `HOST:PORT` of each, the first one wins where two hold one object. After the folders and the cluster; not read when
    /// the mesh config lists `configSources`.
    pub addresses: Vec<String>,
    /// Incremental instead of state of the world.
    pub delta: bool,
    /// Version of Istio's kinds that is asked for where a kind has it (`v1alpha3`); empty is the newest of each.
    pub api_version: String,
    /// TLS even without the files below.
    pub tls: bool,
    /// CA certificates (PEM) that the upstream's certificate must lead to; the system's when there is none.
    pub ca: Option<PathBuf>,
    /// Own certificate chain (PEM).
    pub cert: Option<PathBuf>,
    /// Its key (PEM).
    pub key: Option<PathBuf>,
    /// Name that the upstream's certificate must be for, where it is not the host of the address.
    pub server_name: Option<String>,
    /// File that holds a bearer token; read anew for each connection.
    pub token_file: Option<PathBuf>,
    /// Longest message that is read, in bytes.
    pub max_message_bytes: usize,
    /// More objects than this from one upstream are refused.
    pub max_objects: usize,
    /// First pause before a new attempt to connect; it doubles up to half a minute.
    pub first_pause: Duration,
    /// Types that are not answered this long after the last answer of a stream that goes on are unknown to the upstream.
    pub last_answer: Duration,
    /// Namespace that we say to be in; empty is the mesh's root namespace.
    pub namespace: String,
    /// Name that we say to have.
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

/// Where the last good content is kept, for a start at which sources cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSettings {
    /// Folder; nothing is kept without one.
    pub folder: Option<PathBuf>,
    /// How long a source has to deliver before its old content is served.
    pub grace: Duration,
    /// More bytes than this are neither written nor read, for each source.
    pub max_bytes: u64,
    /// How long changes are gathered before they are written.
    pub quiet: Duration,
}

impl Default for StateSettings {
    fn default() -> Self {
        Self { folder: None, grace: Duration::from_secs(5), max_bytes: 1 << 30, quiet: Duration::from_secs(2) }
    }
}
