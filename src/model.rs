//! Types shared by all rooms: kinds, configs, host names, services, endpoints, push requests, mesh settings.
//!
//! Values only. This room does no I/O and knows no actor, and of an object's source it knows only the [`Origin`].

pub mod cipher;
pub mod config;
mod config_set;
pub mod credential;
pub mod decode;
pub mod difference;
mod document;
pub mod endpoint;
pub mod features;
pub mod grpc_status;
pub mod host;
pub mod identity;
mod intern;
mod interrupted;
pub mod key_set;
pub mod kind;
pub mod labels;
pub mod mcp;
pub mod mesh;
mod moved;
pub mod namespaces;
pub mod node;
pub mod packed;
pub mod pem;
mod policy_targets;
mod ports;
pub mod push_request;
mod secret_access;
pub mod service;
pub mod snapshot;
pub mod validation;
mod workload_certificate;

pub use config::{Config, ConfigEvent, ConfigKey, EventKind, Meta, Origin, Spec, Status, Timestamp};
pub use config_set::{ConfigSet, FullKey, Placed};
pub use credential::{Credential, CredentialKind};
pub use document::document;
pub use endpoint::{Endpoint, EndpointIndex, EndpointSet, HealthStatus, Locality, ShardKey, WorkloadInstance};
pub use features::Features;
pub use host::Hostname;
pub use identity::Identity;
pub use intern::Interner;
pub use interrupted::Interrupted;
pub use kind::{Kind, KindClass};
pub use labels::{LabelLookup, LabelSet, Labels};
pub use mesh::Mesh;
pub use moved::MovedNodes;
pub use node::{Node, NodeMetadata, NodeType};
pub use policy_targets::PolicyTargets;
pub use ports::{RegistryPort, XdsUpdater};
pub use push_request::{PushKey, PushKind, PushRequest, Reason};
pub use secret_access::{AccessRefusal, SecretAccess};
pub use service::{Port, Protocol, Registry, Resolution, Service, ServiceTarget, Visibility};
pub use snapshot::{ConfigSnapshot, PushInputs, RegistrySnapshot, ResolvedNames, Workload, WorkloadDirectory};
pub use workload_certificate::{WorkloadCertificate, WorkloadCertificates};
