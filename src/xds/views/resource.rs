//! A resource as it goes over the wire, and blocks of them that views share.
//!
//! A resource is encoded once. Its version is a hash of its content, so it survives restarts and is the same on every
//! replica; resources that did not change keep their `Arc` from one build to the next.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Name;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::xds::wire;

/// An encoded resource.
#[derive(Debug, Clone)]
pub struct Resource {
    name: Arc<str>,
    hash: u128,
    any: Bytes,
    /// It says only that nothing is known by its name, so that the client does not wait. Not part of the content.
    unknown: bool,
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.name == other.name && self.any == other.any
    }
}

impl Eq for Resource {}

impl Resource {
    /// Encodes a message under its name.
    pub fn encode<M: Name>(name: impl Into<Arc<str>>, message: &M) -> Self {
        let url = M::type_url();
        let length = message.encoded_len();
        let mut any = BytesMut::with_capacity(url.len() + length + 12);
        wire::put_bytes(&mut any, 1, url.as_bytes());
        wire::put_head(&mut any, 2, length);
        // The buffer grows as needed, so encoding cannot run out of room.
        let _ = message.encode(&mut any);
        Self::of_any(name, any.freeze())
    }

    /// A resource of an `Any` that is encoded already (type URL and value).
    pub fn of_parts(name: impl Into<Arc<str>>, type_url: &str, value: &[u8]) -> Self {
        let mut any = BytesMut::with_capacity(type_url.len() + value.len() + 12);
        wire::put_bytes(&mut any, 1, type_url.as_bytes());
        wire::put_bytes(&mut any, 2, value);
        Self::of_any(name, any.freeze())
    }

    fn of_any(name: impl Into<Arc<str>>, any: Bytes) -> Self {
        Self { name: name.into(), hash: xxh3_128(&any), any, unknown: false }
    }

    /// Marks the answer for an unknown name.
    #[must_use]
    pub const fn unknown(mut self) -> Self {
        self.unknown = true;
        self
    }

    /// The name that clients ask for.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Hash of the content.
    #[must_use]
    pub const fn hash(&self) -> u128 {
        self.hash
    }

    /// The encoded `google.protobuf.Any`.
    #[must_use]
    pub const fn any(&self) -> &Bytes {
        &self.any
    }

    /// The version that delta clients see: 16 hexadecimal digits of the hash.
    #[must_use]
    pub fn version(&self) -> String {
        wire::version(self.hash)
    }

    /// Appends the resource as a field of a `DiscoveryResponse`.
    pub fn put_sotw(&self, out: &mut BytesMut) {
        wire::put_bytes(out, 2, &self.any);
    }

    /// Appends the resource as a field of a `DeltaDiscoveryResponse`.
    pub fn put_delta(&self, out: &mut BytesMut) {
        let version = self.version();
        let length = wire::bytes_len(1, version.len())
            + wire::bytes_len(2, self.any.len())
            + wire::bytes_len(3, self.name.len());
        wire::put_head(out, 2, length);
        wire::put_bytes(out, 1, version.as_bytes());
        wire::put_bytes(out, 2, &self.any);
        wire::put_bytes(out, 3, self.name.as_bytes());
    }

    /// Upper bound of the size of either form on the wire.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        self.any.len() + self.name.len() + 48
    }
}

/// A sorted list of resources, one per name, with one digest. Views share equal blocks.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    resources: Vec<Arc<Resource>>,
    digest: u128,
    /// The number of answers for unknown names among them.
    unknown: usize,
    /// The sum of their sizes.
    bytes: usize,
}

impl Block {
    /// A block of these resources. Of several with one name the first stays (Envoy refuses a response that holds a name
    /// twice). Resources and the block itself are taken from `previous` where they are equal.
    #[must_use]
    pub fn build(resources: impl IntoIterator<Item = Arc<Resource>>, previous: Option<&Arc<Self>>) -> Arc<Self> {
        let mut list: Vec<Arc<Resource>> = resources.into_iter().collect();
        // The sort is stable, and quick where the resources come in order already.
        list.sort_by(|a, b| a.name().cmp(b.name()));
        list.dedup_by(|next, first| next.name() == first.name());
        let digest = digest(&list);
        if let Some(previous) = previous {
            if previous.digest == digest {
                return previous.clone();
            }
            for resource in &mut list {
                if let Some(old) = previous.get(resource.name()).filter(|old| old.hash() == resource.hash()) {
                    *resource = old.clone();
                }
            }
        }
        let unknown = list.iter().filter(|resource| resource.unknown).count();
        let bytes = list.iter().map(|resource| resource.any.len()).sum();
        Arc::new(Self { resources: list, digest, unknown, bytes })
    }

    /// The resources in order of their names.
    #[must_use]
    pub fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// The number of answers for unknown names.
    #[must_use]
    pub const fn unknown(&self) -> usize {
        self.unknown
    }

    /// The bytes of all resources.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Hash of names and content.
    #[must_use]
    pub const fn digest(&self) -> u128 {
        self.digest
    }

    /// The resource of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        let at = self.resources.binary_search_by(|r| (**r.name()).cmp(name)).ok()?;
        self.resources.get(at)
    }
}

fn digest(resources: &[Arc<Resource>]) -> u128 {
    let mut hasher = Xxh3::new();
    let mut line = [0u8; 32];
    for resource in resources {
        let mut part = line.as_mut_slice();
        part.put_u128_le(xxh3_128(resource.name().as_bytes()));
        part.put_u128_le(resource.hash());
        hasher.update(&line);
    }
    hasher.digest128()
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::proto::{envoy::service::discovery::v3 as discovery, wkt};

    fn resource(name: &str, value: &str) -> Arc<Resource> {
        Arc::new(Resource::of_parts(name, "t/x", value.as_bytes()))
    }

    #[test]
    fn both_forms_decode_to_the_resource() {
        let resource = resource("a", "one");
        let want = wkt::Any { type_url: "t/x".into(), value: b"one".to_vec() };
        let mut out = BytesMut::new();
        resource.put_sotw(&mut out);
        assert_eq!(discovery::DiscoveryResponse::decode(out.freeze()).unwrap().resources, std::slice::from_ref(&want));
        let mut out = BytesMut::new();
        resource.put_delta(&mut out);
        let delta = discovery::DeltaDiscoveryResponse::decode(out.freeze()).unwrap();
        assert_eq!((&*delta.resources[0].name, &*delta.resources[0].version), ("a", &*resource.version()));
        assert_eq!(delta.resources[0].resource, Some(want));
    }

    #[test]
    fn blocks_keep_unchanged_resources() {
        let first = Block::build([resource("b", "1"), resource("a", "1"), resource("a", "2")], None);
        assert_eq!(first.resources().len(), 2);
        assert_eq!(first.get("a").unwrap().hash(), resource("a", "1").hash(), "the first of a name stays");
        let same = Block::build([resource("a", "1"), resource("b", "1")], Some(&first));
        assert!(Arc::ptr_eq(&first, &same));
        let next = Block::build([resource("a", "9"), resource("b", "1")], Some(&first));
        assert!(Arc::ptr_eq(next.get("b").unwrap(), first.get("b").unwrap()));
        assert_ne!(next.digest(), first.digest());
    }
}
