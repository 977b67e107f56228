//! From events to the resources to send to each proxy: request merging and debounce, the immutable [`PushContext`], and the
//! [`ProxyView`] that names everything of a proxy that generation may read.
//!
//! Invariants: a `PushContext` never changes; parts that a change cannot affect are the same `Arc` as before; generators see
//! a context and a view, never a connection or a node.

pub mod authn;
pub mod changes;
pub mod context;
pub mod debounce;
pub mod destination_rules;
pub mod envoy_filters;
pub mod extensions;
pub mod gateways;
pub mod narrowing;
pub mod network_gateways;
pub mod own_peer;
pub mod policies;
pub mod read_keys;
pub mod requests;
pub mod services;
pub mod sidecar_scope;
pub mod telemetries;
pub mod view;
pub mod virtual_services;

pub use changes::{Change, Changes};
pub use context::PushContext;
pub use debounce::{Batch, Debounce, DebounceSettings};
pub use destination_rules::MergedDestinationRule;
pub use gateways::MergedGateway;
pub use own_peer::OwnPeer;
pub use requests::{Effects, Types, effects};
pub use sidecar_scope::{EgressListener, SidecarScope};
pub use view::ProxyView;
