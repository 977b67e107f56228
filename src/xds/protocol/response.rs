//! A response to one client: the nonce is its own, the content is shared.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::xds::{resource_type::ResourceType, views::update::Update, wire};

/// A response to one client.
#[derive(Debug, Clone)]
pub struct Response {
    /// Its type.
    pub kind: ResourceType,
    /// Its nonce.
    pub nonce: String,
    /// Its content, which many clients share.
    pub update: Arc<Update>,
}

impl Response {
    /// The pieces of the gRPC message.
    #[must_use]
    pub fn frames(&self) -> (Bytes, Option<Bytes>) {
        let mut head = BytesMut::with_capacity(self.nonce.len() + 4);
        wire::put_bytes(&mut head, 5, self.nonce.as_bytes());
        wire::grpc_frames(&head, self.update.body())
    }
}
