//! Types without a server that a client of config objects asks for. Each is answered once, with nothing, so that the client
//! does not wait for it (Istio's "api" generator does the same).

use std::collections::{BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};

use crate::xds::wire;

/// Types that are answered on one stream.
const MOST: usize = 256;
/// Bytes of a type URL.
const LONGEST: usize = 512;

/// The unknown types of one stream.
#[derive(Debug, Default)]
pub(crate) struct UnknownTypes {
    seen: BTreeSet<String>,
    waiting: VecDeque<String>,
}

impl UnknownTypes {
    /// A request for a type. Only the first one is answered: those that follow acknowledge the answer.
    pub(crate) fn ask(&mut self, url: &str) {
        if self.seen.len() < MOST && url.len() <= LONGEST && self.seen.insert(url.to_string()) {
            self.waiting.push_back(url.to_string());
        }
    }

    /// Whether an answer is owed.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The pieces of the next answer: a response without resources, which looks the same in both protocols.
    pub(crate) fn answer(&mut self) -> Option<(Bytes, Option<Bytes>)> {
        let url = self.waiting.pop_front()?;
        let nonce = format!("unknown-{}", self.seen.len() - self.waiting.len());
        let (mut head, mut body) = (BytesMut::new(), BytesMut::new());
        wire::put_bytes(&mut head, 5, nonce.as_bytes());
        wire::put_bytes(&mut body, 1, b"0");
        wire::put_bytes(&mut body, 4, url.as_bytes());
        Some(wire::grpc_frames(&head, body.freeze()))
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::proto::envoy::service::discovery::v3 as discovery;

    #[test]
    fn each_type_is_answered_once() {
        let mut types = UnknownTypes::default();
        types.ask("a.io/v1/A");
        types.ask("a.io/v1/A");
        types.ask(&"x".repeat(LONGEST + 1));
        let (head, body) = types.answer().unwrap();
        assert!(!types.is_waiting() && types.answer().is_none());
        let message = [&head[5..], &body.unwrap_or_default()[..]].concat();
        let sotw = discovery::DiscoveryResponse::decode(message.as_slice()).unwrap();
        let delta = discovery::DeltaDiscoveryResponse::decode(message.as_slice()).unwrap();
        assert_eq!((sotw.type_url.as_str(), delta.type_url.as_str()), ("a.io/v1/A", "a.io/v1/A"));
        assert!(!sotw.nonce.is_empty() && sotw.nonce == delta.nonce && sotw.resources.is_empty());
    }

    #[test]
    fn a_client_cannot_make_it_grow() {
        let mut types = UnknownTypes::default();
        (0..10_000).for_each(|n| types.ask(&n.to_string()));
        assert_eq!((types.seen.len(), types.waiting.len()), (MOST, MOST));
    }
}
