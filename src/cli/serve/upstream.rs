//! Flags of upstreams and of the folder in which the last good content is kept.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::duration;
use crate::settings::{StateSettings, UpstreamSettings};

/// Other control planes whose config objects are read over xDS.
#[derive(Debug, Clone, Args)]
pub struct UpstreamArgs {
    /// Control plane whose config objects are read over xDS (MCP); the first of several wins where two hold one object, and
    /// folders and the cluster win over all of them. `configSources` in the mesh config are read instead, where there are any.
    #[arg(long, env = "PILOTHOUSE_UPSTREAM", value_name = "HOST:PORT", value_delimiter = ',')]
    pub upstream: Vec<String>,
    /// Speak the incremental protocol with upstreams.
    #[arg(long, env = "PILOTHOUSE_UPSTREAM_DELTA")]
    pub upstream_delta: bool,
    /// Version of Istio's kinds to ask upstreams for, where they are older than the newest (v1alpha3, v1beta1).
    #[arg(long, env = "PILOTHOUSE_UPSTREAM_API_VERSION", value_name = "VERSION")]
    pub upstream_api_version: Option<String>,
    /// Speak TLS with upstreams, also without the files below.
    #[arg(long, env = "PILOTHOUSE_UPSTREAM_TLS")]
    pub upstream_tls: bool,
    /// CA certificates (PEM) of upstreams; the system's without it.
    #[arg(long, env = "PILOTHOUSE_UPSTREAM_CA", value_name = "FILE")]
    pub upstream_ca: Option<PathBuf>,
    /// Own certificate chain (PEM) for upstreams.
    #[arg(long, env = "PILOTHOUSE_UPSTREAM_CERT", value_name = "FILE", requires = "upstream_key")]
    pub upstream_cert: Option<PathBuf>,
    /// Key (PEM) of that certificate.
    #[arg(long, env = "PILOTHOUSE_UPSTREAM_KEY", value_name = "FILE", requires = "upstream_cert")]
    pub upstream_key: Option<PathBuf>,
    /// Name that the certificate of an upstream must be for, where it is not the host of its address.
    #[arg(long, env = "PILOTHOUSE_UPSTREAM_SERVER_NAME", value_name = "NAME")]
    pub upstream_server_name: Option<String>,
    /// File with a bearer token for upstreams; read anew for each connection.
    #[arg(long, env = "PILOTHOUSE_UPSTREAM_TOKEN_FILE", value_name = "FILE")]
    pub upstream_token_file: Option<PathBuf>,
    /// Longest message of an upstream that is read, in bytes.
    #[arg(long, env = "PILOTHOUSE_UPSTREAM_MAX_MESSAGE_BYTES", default_value_t = 64 << 20, value_name = "BYTES")]
    pub upstream_max_message_bytes: usize,
    /// Folder in which the last good content of each source is kept (never secrets), and from which it is served after a
    /// start at which the source cannot be reached.
    #[arg(long, env = "PILOTHOUSE_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Time that a source has to deliver before its content from --state-dir is served.
    #[arg(long, env = "PILOTHOUSE_STATE_GRACE", default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub state_grace: Duration,
}

impl UpstreamArgs {
    /// Settings of upstreams.
    pub(super) fn settings(&self) -> UpstreamSettings {
        UpstreamSettings {
            addresses: self.upstream.clone(),
            delta: self.upstream_delta,
            api_version: self.upstream_api_version.clone().unwrap_or_default(),
            tls: self.upstream_tls,
            ca: self.upstream_ca.clone(),
            cert: self.upstream_cert.clone(),
            key: self.upstream_key.clone(),
            server_name: self.upstream_server_name.clone(),
            token_file: self.upstream_token_file.clone(),
            max_message_bytes: self.upstream_max_message_bytes,
            ..UpstreamSettings::default()
        }
    }

    /// Settings of the folder for the last good content.
    pub(super) fn state(&self) -> StateSettings {
        StateSettings { folder: self.state_dir.clone(), grace: self.state_grace, ..StateSettings::default() }
    }
}
