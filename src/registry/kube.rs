//! Kubernetes objects of one cluster: Services, EndpointSlices, Pods, Nodes and Namespaces become services and endpoints
//! (Istio's kube controller). One [`Cluster`] per cluster; changes are noted first and computed in a flush.
//!
//! A service has endpoints only while its Service object exists; an endpoint that refers to a pod waits for the pod.

mod cluster;
mod directory;
mod endpoints;
mod mirror;
mod pod;
mod service;
mod space;

pub use cluster::Cluster;
pub use directory::Directory;
pub use pod::Pod;
pub use space::{Flushed, Moved, Unit};
