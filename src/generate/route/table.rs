//! A route configuration as a table of virtual hosts: built as a message, or put together from encoded virtual hosts.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use prost::{Message, encoding::encode_varint};
use rayon::prelude::*;

use super::virtual_host::VirtualHostInputs;
use crate::generate::check::Refusal;
use crate::proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

/// Envoy's default of 4 KiB is less than the longest body of a VirtualService.
const MAX_DIRECT_RESPONSE_BYTES: u32 = 1024 * 1024;
/// Field 2 of `RouteConfiguration`, length-delimited.
const VIRTUAL_HOSTS_TAG: u8 = 2 << 3 | 2;

/// Fewer virtual hosts are not worth another thread.
const WORTH_A_THREAD: usize = 32;

/// A route configuration before it is built.
#[derive(Debug)]
pub struct RouteTable<'a> {
    /// RDS name.
    pub name: String,
    /// Virtual hosts, sorted by name.
    pub hosts: Vec<VirtualHostInputs<'a>>,
    /// A last virtual host that is the same for every table of its kind.
    pub last: Option<VirtualHost>,
}

impl RouteTable<'_> {
    /// The route configuration.
    #[must_use]
    pub fn build(&self) -> RouteConfiguration {
        let hosts = self.hosts.iter().filter_map(|host| host.build().host);
        RouteConfiguration { virtual_hosts: hosts.chain(self.last.clone()).collect(), ..self.fields() }
    }

    /// The bytes of the route configuration, and its refusals. Virtual hosts whose key is known are not built again.
    #[must_use]
    pub fn encode(&self, memo: &VirtualHostMemo) -> (Bytes, Vec<Refusal>) {
        let last = self.last.as_ref().map(|host| Bytes::from(host.encode_to_vec()));
        let hosts = self.hosts.par_iter().with_min_len(WORTH_A_THREAD);
        let hosts: Vec<EncodedHost> = hosts.map(|host| memo.encoded(host)).collect();
        let refused = hosts.iter().flat_map(|host| host.refused.iter().cloned()).collect();
        let hosts: Vec<Bytes> = hosts.into_iter().filter_map(|host| host.bytes).chain(last).collect();
        (assembled(&self.fields(), hosts), refused)
    }

    pub(super) fn fields(&self) -> RouteConfiguration {
        RouteConfiguration {
            name: self.name.clone(),
            validate_clusters: Some(false),
            max_direct_response_body_size_bytes: Some(MAX_DIRECT_RESPONSE_BYTES),
            ignore_port_in_host_matching: true,
            ..Default::default()
        }
    }
}

/// The fields of a route configuration, and then its virtual hosts.
pub(super) fn assembled(fields: &RouteConfiguration, hosts: Vec<Bytes>) -> Bytes {
    let room = fields.encoded_len() + hosts.iter().map(|h| h.len() + 6).sum::<usize>();
    let mut bytes = BytesMut::with_capacity(room);
    bytes.extend_from_slice(&fields.encode_to_vec());
    for host in hosts {
        bytes.put_u8(VIRTUAL_HOSTS_TAG);
        encode_varint(host.len() as u64, &mut bytes);
        bytes.extend_from_slice(&host);
    }
    bytes.freeze()
}

/// A route configuration without virtual hosts: for a name without a service, port or host (any more).
#[must_use]
pub fn empty(name: &str) -> RouteConfiguration {
    RouteConfiguration { name: name.to_string(), validate_clusters: Some(false), ..Default::default() }
}

/// A virtual host as it is sent.
#[derive(Debug, Clone)]
pub struct EncodedHost {
    /// `None` for one that is left out.
    pub bytes: Option<Bytes>,
    /// The parts that were left out of the bytes.
    pub refused: Arc<[Refusal]>,
}

impl EncodedHost {
    fn len(&self) -> usize {
        self.bytes.as_ref().map_or(0, Bytes::len)
    }
}

/// Encoded virtual hosts by key. Two generations, each of at most `limit` bytes: when the young one is full it becomes the
/// old one, and an entry without a request since is forgotten.
#[derive(Debug)]
pub struct VirtualHostMemo {
    generations: Mutex<Generations>,
    limit: usize,
    built: AtomicU64,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u128, EncodedHost>,
    old: HashMap<u128, EncodedHost>,
    young_bytes: usize,
}

impl Default for VirtualHostMemo {
    fn default() -> Self {
        Self::with_limit(32 << 20)
    }
}

impl VirtualHostMemo {
    /// A memo of at most twice `limit` bytes.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self { generations: Mutex::default(), limit, built: AtomicU64::new(0) }
    }

    /// The number of virtual hosts that were built and encoded.
    #[must_use]
    pub fn built(&self) -> u64 {
        self.built.load(Ordering::Relaxed)
    }

    /// A virtual host. Two callers that ask at once may both build it.
    #[must_use]
    pub fn encoded(&self, inputs: &VirtualHostInputs) -> EncodedHost {
        self.get_or_build(inputs.key(), || {
            let built = inputs.build();
            let bytes = built.host.is_some().then(|| Bytes::from(built.bytes));
            EncodedHost { bytes, refused: built.refused.into() }
        })
    }

    /// The virtual host of a key.
    pub(super) fn get_or_build(&self, key: u128, build: impl FnOnce() -> EncodedHost) -> EncodedHost {
        if let Some(known) = self.lock().get(key, self.limit) {
            return known;
        }
        let host = build();
        self.built.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(key, host.clone(), self.limit);
        host
    }

    /// A panic of another caller leaves a map that is still valid.
    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.generations.lock()
    }
}

impl Generations {
    fn get(&mut self, key: u128, limit: usize) -> Option<EncodedHost> {
        if let Some(host) = self.young.get(&key) {
            return Some(host.clone());
        }
        let host = self.old.remove(&key)?;
        self.insert(key, host.clone(), limit);
        Some(host)
    }

    fn insert(&mut self, key: u128, host: EncodedHost, limit: usize) {
        if self.young_bytes + host.len() > limit {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if host.len() <= limit {
            self.young_bytes += host.len();
            self.young.insert(key, host);
        }
    }
}
