//! The settings of the xDS server. Their defaults suit a server of one mesh; limits of clients are among them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::xds::protocol::refusals::Backoff;

/// Settings of the server.
#[derive(Clone)]
pub struct XdsOptions {
    /// Threads that generate at the same time.
    pub build_threads: usize,
    /// New streams per second whose view is not built yet (`PILOT_MAX_REQUESTS_PER_SECOND`); `None` lets the number of
    /// builds that run at once be the only bound.
    pub max_requests_per_second: Option<f64>,
    /// Connections at the same time. When there is no room, one without streams makes room.
    pub max_connections: usize,
    /// Streams of one connection (`ISTIO_GPRC_MAXSTREAMS`).
    pub max_streams: u32,
    /// Bytes of one request (`ISTIO_GPRC_MAXRECVMSGSIZE`).
    pub max_request_bytes: usize,
    /// Bounds on subscribed names, of all connections and of one; equal lists count once. Of ten thousand proxies a few
    /// hundred views ask for different lists.
    pub names: (usize, usize),
    /// Bounds on the bytes of the nodes of open streams, of all connections and of one. A node of Istio's agent has 5 to 20 kB;
    /// 256 kB are admitted.
    pub node_bytes: (usize, usize),
    /// A connection has to begin with HTTP/2 within this time.
    pub preface: Duration,
    /// A request has to come whole within this time from its first byte.
    pub whole_request: Duration,
    /// A client that takes nothing off the wire for so long is cut off.
    pub send_stall: Duration,
    /// Bytes of responses that wait for all clients to read, and the time that each client has in any case. Beyond the bytes the
    /// connections that wait longest are closed.
    pub unread: (usize, Duration),
    /// A stream has to send its first request within this time.
    pub first_request: Duration,
    /// Pauses before content that a client refused is sent to it again.
    pub refused_again: Backoff,
    /// A connection is asked for a sign of life at this interval, and closed when none comes within the second time.
    pub keepalive: (Duration, Duration),
    /// Connections are closed gracefully at this age.
    pub max_connection_age: Option<Duration>,
    /// Whether clients on plaintext connections have the identity that their node claims.
    pub trust_nodes: bool,
    /// Ids that proxies may give for a cluster instead of its own.
    pub cluster_aliases: BTreeMap<String, Arc<str>>,
    /// Time over which streams are closed on shutdown.
    pub drain: Duration,
}

impl Default for XdsOptions {
    fn default() -> Self {
        Self {
            build_threads: std::thread::available_parallelism().map_or(2, usize::from),
            max_requests_per_second: None,
            max_connections: 65_536,
            max_streams: 100_000,
            max_request_bytes: 4 << 20,
            names: (4_000_000, 500_000),
            node_bytes: (1 << 30, 16 << 20),
            preface: Duration::from_secs(10),
            whole_request: Duration::from_secs(30),
            send_stall: Duration::from_secs(60),
            unread: (256 << 20, Duration::from_secs(10)),
            first_request: Duration::from_secs(15),
            refused_again: Backoff::default(),
            keepalive: (Duration::from_secs(30), Duration::from_secs(10)),
            max_connection_age: None,
            trust_nodes: false,
            cluster_aliases: BTreeMap::new(),
            drain: Duration::from_secs(2),
        }
    }
}

impl std::fmt::Debug for XdsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdsOptions").field("build_threads", &self.build_threads).finish_non_exhaustive()
    }
}
