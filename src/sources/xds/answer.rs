//! The messages of both protocols in one shape: the upstream's answers and the requests to it.

use std::collections::BTreeMap;

use crate::proto::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse},
    },
    google::rpc::Status,
    wkt::Any,
};

/// `INVALID_ARGUMENT`: the code of a refusal.
const INVALID_ARGUMENT: i32 = 3;

/// A resource as it was given.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    /// Its name outside of the resource itself; empty for state of the world.
    pub name: String,
    /// Its version; empty for state of the world.
    pub version: String,
    /// The resource; `None` is malformed.
    pub resource: Option<Any>,
}

/// A `DiscoveryResponse` or `DeltaDiscoveryResponse`.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Type URL.
    pub type_url: String,
    /// Version of the whole; for delta it means nothing.
    pub version: String,
    /// Nonce; empty when the upstream wants no answer.
    pub nonce: String,
    /// The resources: all there are (state of the world), or the new and changed ones.
    pub resources: Vec<Given>,
    /// Names of removed resources (delta only).
    pub removed: Vec<String>,
    /// The resources are all there are.
    pub whole: bool,
}

impl From<DiscoveryResponse> for Answer {
    fn from(response: DiscoveryResponse) -> Self {
        let given = |any| Given { name: String::new(), version: String::new(), resource: Some(any) };
        Self {
            type_url: response.type_url,
            version: response.version_info,
            nonce: response.nonce,
            resources: response.resources.into_iter().map(given).collect(),
            removed: Vec::new(),
            whole: true,
        }
    }
}

impl From<DeltaDiscoveryResponse> for Answer {
    fn from(response: DeltaDiscoveryResponse) -> Self {
        let given = response.resources.into_iter();
        Self {
            type_url: response.type_url,
            version: response.system_version_info,
            nonce: response.nonce,
            resources: given.map(|r| Given { name: r.name, version: r.version, resource: r.resource }).collect(),
            removed: response.removed_resources,
            whole: false,
        }
    }
}

/// A request: the first one of a type on a stream, or the reply to an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ask {
    /// Type URL.
    pub type_url: String,
    /// Version that is held (state of the world).
    pub version: String,
    /// Nonce of the answer that is replied to; empty for the first request.
    pub nonce: String,
    /// The reason of a refusal (NACK); `None` accepts the answer (ACK).
    pub refusal: Option<String>,
    /// It subscribes to all resources (`*`).
    pub subscribe: bool,
    /// Versions that are held, by name (delta, first request).
    pub held: BTreeMap<String, String>,
}

fn status(refusal: Option<String>) -> Option<Status> {
    refusal.map(|message| Status { code: INVALID_ARGUMENT, message, details: Vec::new() })
}

impl Ask {
    /// As a state-of-the-world request.
    #[must_use]
    pub fn into_sotw(self, node: Option<Node>) -> DiscoveryRequest {
        DiscoveryRequest {
            node,
            type_url: self.type_url,
            version_info: self.version,
            response_nonce: self.nonce,
            error_detail: status(self.refusal),
            ..DiscoveryRequest::default()
        }
    }

    /// As a delta request.
    #[must_use]
    pub fn into_delta(self, node: Option<Node>) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node,
            type_url: self.type_url,
            response_nonce: self.nonce,
            error_detail: status(self.refusal),
            resource_names_subscribe: self.subscribe.then(|| "*".to_string()).into_iter().collect(),
            initial_resource_versions: self.held,
            ..DeltaDiscoveryRequest::default()
        }
    }
}
