//! Requests as raw bytes. Fields are walked, not decoded: an ACK that repeats a thousand names costs one hash of them.

use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::{Field, Fields, Malformed, WrittenLists, written::LOOKED_UP_FROM};
use crate::xds::names::NameSet;

/// Names in one request or on one stream; Istio has no bound.
pub const MAX_NAMES: usize = 100_000;
/// Bytes of one name.
pub const MAX_NAME: usize = 4096;
/// Bytes of a node.
pub const MAX_NODE: usize = 256 << 10;

/// Why a request is refused. The stream ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not a protobuf message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A text field that is not UTF-8.
    #[error("{0} is not UTF-8")]
    NotText(&'static str),
    /// More than this server holds for one stream.
    #[error("more than {limit} {what}")]
    TooMany {
        /// The bounded thing.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
}

/// A client's complaint about a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// Code of `google.rpc.Status`.
    pub code: u64,
    /// Its text, cut at 2 kB.
    pub message: String,
}

/// Names in a message that have not been parsed.
#[derive(Debug, Clone, Copy)]
pub struct RawNames<'a> {
    message: &'a [u8],
    field: u32,
    /// The number of them.
    pub count: usize,
    /// Hash of the encoded names in the order of the message; 0 where it is not taken.
    pub hash: u128,
}

impl<'a> RawNames<'a> {
    fn values(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let own = self.field;
        Fields::of(self.message).filter_map(move |field| match field {
            Ok(Field::Bytes(number, value)) if number == own => Some(value),
            _ => None,
        })
    }

    /// Parses the names.
    ///
    /// # Errors
    /// [`RequestError`] for a name that is too long or not UTF-8, or too many of them.
    pub fn parse(&self) -> Result<Vec<Arc<str>>, RequestError> {
        if self.count > MAX_NAMES {
            return Err(RequestError::TooMany { what: "resource names", limit: MAX_NAMES });
        }
        let mut names = Vec::with_capacity(self.count);
        for field in Fields::of(self.message) {
            if let Field::Bytes(number, value) = field?
                && number == self.field
            {
                if value.len() > MAX_NAME {
                    return Err(RequestError::TooMany { what: "bytes in a resource name", limit: MAX_NAME });
                }
                names.push(Arc::from(text(value, "a resource name")?));
            }
        }
        Ok(names)
    }

    /// Parses the names into a set, `*` apart: whether it was there, and the others. A list that is `known` is not parsed.
    ///
    /// # Errors
    /// As [`RawNames::parse`].
    pub fn parse_set(&self, known: &WrittenLists) -> Result<(bool, Arc<NameSet>), RequestError> {
        let looked_up = self.hash != 0 && self.count >= LOOKED_UP_FROM;
        if looked_up && let Some(found) = known.recall(self.hash, self.values()) {
            return Ok(found);
        }
        let list = self.parse()?;
        let names = NameSet::of(list.iter().filter(|n| &***n != "*").cloned());
        if looked_up {
            known.remember(self.hash, &list, &names);
        }
        Ok((list.iter().any(|n| &**n == "*"), names))
    }
}

/// A `DiscoveryRequest` or a `DeltaDiscoveryRequest`.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The encoded node; empty when absent.
    pub node: &'a [u8],
    /// Type URL.
    pub type_url: &'a str,
    /// Nonce of the response that is answered; empty when none is.
    pub nonce: &'a [u8],
    /// The request names a version (state of the world): the client holds content, also from an earlier stream.
    pub versioned: bool,
    /// Set when the response is refused.
    pub error: Option<Complaint>,
    /// `resource_names`, or `resource_names_subscribe`.
    pub names: RawNames<'a>,
    /// `resource_names_unsubscribe`; empty for state of the world.
    pub unsubscribe: RawNames<'a>,
    message: &'a [u8],
}

impl<'a> Request<'a> {
    /// Walks a state-of-the-world request.
    ///
    /// # Errors
    /// [`RequestError`] for bytes that are no such message.
    pub fn sotw(message: &'a [u8]) -> Result<Self, RequestError> {
        Self::walk(
            message,
            Layout { version: Some(1), node: 2, type_url: 4, nonce: 5, error: 6, names: 3, unsubscribe: None },
        )
    }

    /// Walks a delta request.
    ///
    /// # Errors
    /// [`RequestError`] for bytes that are no such message.
    pub fn delta(message: &'a [u8]) -> Result<Self, RequestError> {
        Self::walk(
            message,
            Layout { version: None, node: 1, type_url: 2, nonce: 6, error: 7, names: 3, unsubscribe: Some(4) },
        )
    }

    fn walk(message: &'a [u8], layout: Layout) -> Result<Self, RequestError> {
        let raw = |field| RawNames { message, field, count: 0, hash: 0 };
        let mut request = Self {
            node: &[],
            type_url: "",
            nonce: &[],
            versioned: false,
            error: None,
            names: raw(layout.names),
            unsubscribe: raw(layout.unsubscribe.unwrap_or(u32::MAX)),
            message,
        };
        let (mut fields, mut names) = (Fields::of(message), RunHash::default());
        loop {
            let before = fields.rest();
            let Some(field) = fields.next() else { break };
            let Field::Bytes(number, value) = field? else { continue };
            if number == layout.names {
                request.names.count += 1;
                names.add(before, fields.rest().len());
            } else if number == layout.node {
                request.node = value;
            } else if number == layout.type_url {
                request.type_url = text(value, "type_url")?;
            } else if number == layout.nonce {
                request.nonce = value;
            } else if number == layout.error {
                request.error = Some(complaint(value)?);
            } else if Some(number) == layout.version {
                request.versioned = !value.is_empty();
            } else if Some(number) == layout.unsubscribe {
                request.unsubscribe.count += 1;
            }
        }
        if request.node.len() > MAX_NODE {
            return Err(RequestError::TooMany { what: "bytes in a node", limit: MAX_NODE });
        }
        request.names.hash = names.finish();
        Ok(request)
    }

    /// The entries of `initial_resource_versions` of a delta request, each a message of a protobuf map.
    ///
    /// # Errors
    /// [`RequestError`] when the request is malformed.
    pub fn initial_versions(&self) -> Result<Vec<&'a [u8]>, RequestError> {
        let mut entries = Vec::new();
        for field in Fields::of(self.message) {
            if let Field::Bytes(5, entry) = field? {
                entries.push(entry);
            }
        }
        Ok(entries)
    }
}

/// The hash of some fields of a message, as they are encoded. Fields that follow each other, as names do, are hashed in one go.
#[derive(Default)]
struct RunHash<'a> {
    /// The hash of all runs before the last.
    earlier: Option<Box<Xxh3>>,
    /// From the beginning of the last run to the end of the message.
    run: &'a [u8],
    /// The number of its bytes that are behind the run.
    behind: usize,
}

impl<'a> RunHash<'a> {
    /// Adds a field: the message from its beginning, and the number of bytes behind it.
    fn add(&mut self, from: &'a [u8], behind: usize) {
        if from.len() != self.behind {
            let run = self.bytes();
            if !run.is_empty() {
                self.earlier.get_or_insert_default().update(run);
            }
            self.run = from;
        }
        self.behind = behind;
    }

    fn bytes(&self) -> &'a [u8] {
        self.run.get(..self.run.len() - self.behind).unwrap_or_default()
    }

    fn finish(self) -> u128 {
        let run = self.bytes();
        match self.earlier {
            None => xxh3_128(run),
            Some(mut earlier) => {
                earlier.update(run);
                earlier.digest128()
            }
        }
    }
}

struct Layout {
    version: Option<u32>,
    node: u32,
    type_url: u32,
    nonce: u32,
    error: u32,
    names: u32,
    unsubscribe: Option<u32>,
}

fn text<'a>(value: &'a [u8], what: &'static str) -> Result<&'a str, RequestError> {
    std::str::from_utf8(value).map_err(|_| RequestError::NotText(what))
}

fn complaint(status: &[u8]) -> Result<Complaint, RequestError> {
    let mut complaint = Complaint { code: 0, message: String::new() };
    for field in Fields::of(status) {
        match field? {
            Field::Number(1, code) => complaint.code = code,
            Field::Bytes(2, value) => {
                let cut = value.get(..2048).unwrap_or(value);
                complaint.message = String::from_utf8_lossy(cut).into_owned();
            }
            _ => {}
        }
    }
    Ok(complaint)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::proto::{
        envoy::{config::core::v3::Node, service::discovery::v3 as discovery},
        google::rpc::Status,
    };

    #[test]
    fn sotw_fields() {
        let message = discovery::DiscoveryRequest {
            node: Some(Node { id: "n".into(), ..Default::default() }),
            resource_names: vec!["b".into(), "*".into(), "a".into()],
            type_url: "t/u".into(),
            response_nonce: "7".into(),
            error_detail: Some(Status { code: 3, message: "bad".into(), details: vec![] }),
            ..Default::default()
        };
        let bytes = message.encode_to_vec();
        let request = Request::sotw(&bytes).unwrap();
        assert_eq!((request.type_url, request.nonce, request.names.count), ("t/u", &b"7"[..], 3));
        assert_eq!(Node::decode(request.node).unwrap().id, "n");
        assert_eq!(request.error, Some(Complaint { code: 3, message: "bad".into() }));
        let (star, names) = request.names.parse_set(&WrittenLists::default()).unwrap();
        assert!(star);
        assert_eq!(names.names(), ["a".into(), "b".into()]);
    }

    #[test]
    fn delta_fields() {
        let message = discovery::DeltaDiscoveryRequest {
            type_url: "t/u".into(),
            resource_names_subscribe: vec!["a".into()],
            resource_names_unsubscribe: vec!["b".into(), "c".into()],
            initial_resource_versions: [("a".to_string(), "1".to_string())].into(),
            ..Default::default()
        };
        let bytes = message.encode_to_vec();
        let request = Request::delta(&bytes).unwrap();
        assert_eq!((request.names.count, request.unsubscribe.count), (1, 2));
        assert_eq!(request.unsubscribe.parse().unwrap(), ["b".into(), "c".into()]);
        assert_eq!(request.initial_versions().unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_an_error(bytes: Vec<u8>) {
            for request in [Request::sotw(&bytes), Request::delta(&bytes)].into_iter().flatten() {
                let _ = (request.names.parse(), request.unsubscribe.parse_set(&WrittenLists::default()), request.initial_versions());
            }
        }
    }
}
