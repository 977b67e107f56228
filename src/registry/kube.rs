//! Kubernetes objects of one cluster: Services, EndpointSlices, Pods, Nodes and Namespaces become services and endpoints
//! (Istio's kube controller). There is one [`Cluster`] per cluster; changes mark services as dirty, and a flush computes them.
//!
//! A service has endpoints only while its Service object exists. An endpoint that refers to a Pod waits for the Pod.

mod cluster;
mod directory;
mod endpoints;
mod mirror;
mod pod;
mod service;
mod space;

pub use cluster::Cluster;
pub use directory::{Directory, stated_namespace};
pub use pod::Pod;
pub use space::{Flushed, Moved, Unit};
