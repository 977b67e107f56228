//! A route configuration as a table of virtual hosts: built as a message, or put together from encoded virtual hosts.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::{BufMut, Bytes, BytesMut};
use prost::{Message, encoding::encode_varint};
use rayon::prelude::*;

use super::virtual_host::VirtualHostInputs;
use crate::proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

/// Envoy's default of 4 KiB is less than what a VirtualService may say.
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
        let hosts = self.hosts.iter().map(VirtualHostInputs::build);
        RouteConfiguration { virtual_hosts: hosts.chain(self.last.clone()).collect(), ..self.fields() }
    }

    /// The bytes of the route configuration. Virtual hosts whose key is known are not built again.
    #[must_use]
    pub fn encode(&self, memo: &VirtualHostMemo) -> Bytes {
        let last = self.last.as_ref().map(|host| Bytes::from(host.encode_to_vec()));
        let hosts = self.hosts.par_iter().with_min_len(WORTH_A_THREAD);
        let mut hosts: Vec<Bytes> = hosts.map(|host| memo.encoded(host)).collect();
        hosts.extend(last);
        let fields = self.fields();
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

    fn fields(&self) -> RouteConfiguration {
        RouteConfiguration {
            name: self.name.clone(),
            validate_clusters: Some(false),
            max_direct_response_body_size_bytes: Some(MAX_DIRECT_RESPONSE_BYTES),
            ignore_port_in_host_matching: true,
            ..Default::default()
        }
    }
}

/// A route configuration without virtual hosts: for a name that nothing stands behind (any more).
#[must_use]
pub fn empty(name: &str) -> RouteConfiguration {
    RouteConfiguration { name: name.to_string(), validate_clusters: Some(false), ..Default::default() }
}

/// Encoded virtual hosts by key. Two generations, each of at most `limit` bytes: when the young one is full it becomes the
/// old one, and what nobody asked for since is forgotten.
#[derive(Debug)]
pub struct VirtualHostMemo {
    generations: Mutex<Generations>,
    limit: usize,
    built: AtomicU64,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u128, Bytes>,
    old: HashMap<u128, Bytes>,
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

    /// How many virtual hosts were built and encoded.
    #[must_use]
    pub fn built(&self) -> u64 {
        self.built.load(Ordering::Relaxed)
    }

    /// The bytes of a virtual host. Two callers that ask at once may both build it.
    #[must_use]
    pub fn encoded(&self, inputs: &VirtualHostInputs) -> Bytes {
        let key = inputs.key();
        if let Some(bytes) = self.lock().get(key, self.limit) {
            return bytes;
        }
        let bytes = Bytes::from(inputs.build().encode_to_vec());
        self.built.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(key, bytes.clone(), self.limit);
        bytes
    }

    /// A panic of another caller leaves a map that is still valid.
    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn get(&mut self, key: u128, limit: usize) -> Option<Bytes> {
        if let Some(bytes) = self.young.get(&key) {
            return Some(bytes.clone());
        }
        let bytes = self.old.remove(&key)?;
        self.insert(key, bytes.clone(), limit);
        Some(bytes)
    }

    fn insert(&mut self, key: u128, bytes: Bytes, limit: usize) {
        if self.young_bytes + bytes.len() > limit {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if bytes.len() <= limit {
            self.young_bytes += bytes.len();
            self.young.insert(key, bytes);
        }
    }
}
