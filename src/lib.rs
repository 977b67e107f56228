//! **pilothouse** is an Istio-API control plane in one binary. It reads Istio objects (and the Kubernetes objects beside them)
//! from several sources, keeps them in one config cache, turns them into one service registry, and serves xDS to stock Envoy and
//! to proxyless gRPC programs. A VirtualService has the meaning that it has in Istio: the generated resources are compared with
//! those of istiod.
//!
//! # The way of a change
//!
//! ```text
//!   folders      Kubernetes API      another xDS server             sources     one actor each
//!      \________________|________________/
//!                       | batches: one in flight, its reply is the back-pressure
//!                       v
//!       the objects of each source -> the one aggregate             store       one actor
//!                       | events: old, new; add, update, delete
//!                       v
//!       a registry operation, a push request, or nothing            handlers    one actor for each type
//!                 |                          \
//!                 v                           \
//!       services, endpoints, workloads         \                   registry    one actor
//!                 |                              \
//!                 v                               v
//!       requests merged and debounced: all inputs as they stand     push        one request waits at most
//!                       |
//!                       v
//!       Gateway API, the service APIs, Ingress -> Istio's objects   translate   pure, with a status for each object
//!                       | beside the user's objects
//!                       v
//!       a new PushContext, with its indexes                         push        immutable, old parts shared
//!                       |
//!                       v
//!       PushContext + ProxyView -> Envoy's resources                generate    pure
//!                       | encoded once for each view
//!                       v
//!       views, connections, streams over the protocol of `xds`      discovery   one actor, a task for each stream
//! ```
//!
//! The picture shows the *rooms*: the top-level modules. Data flows down. A room may use the rooms above it and never one below;
//! the sender of data declares the trait that it sends through (a port, `model::ports`), and the receiver implements it. Only
//! one request travels up: "send me everything again", after a fault. `tests/architecture` holds these rules.
//!
//! # Terms
//!
//! Other terms are those of Istio, Envoy and Kubernetes.
//!
//! - A **view** is the content for one group of proxies: all proxies with equal inputs of generation (type, namespace, labels as
//!   far as they matter, proven identity, …) share one. Its resources are generated and encoded once, not for each proxy.
//! - A **slot** is one of the parts that make up a view: outbound routing, outbound listeners, the resources of the workload
//!   itself, and secrets. Views share the slots whose inputs are equal.
//! - A **block** is an immutable, sorted list of encoded resources of one type. Equal blocks are shared.
//! - A **snapshot** is the blocks of one type, as far as the names that a client subscribes to, at one moment. A connection
//!   points to the snapshot that its client acknowledged and to the one that it is sent; the difference is a response. The
//!   snapshots of the store and of the registry are likewise their immutable content at one moment.
//!
//! # The rooms, and where a new line belongs
//!
//! | room | content |
//! |---|---|
//! | [`proto`] | generated messages of Envoy and Istio, and proto3 JSON; a new message begins in `proto/` or in its `build.rs` |
//! | [`model`] | the vocabulary: kinds, objects, hosts, services, endpoints; a kind's decoding and validation |
//! | [`settings`] | the settings of the process, a struct for each room |
//! | [`telemetry`] | logs and metrics, set up once |
//! | [`runtime`] | the life of actors: supervision, back-off, readiness, the end of the process |
//! | [`sources`] | from the outside world to batches: files, Kubernetes, xDS; a new place to read from |
//! | [`store`] | the objects of each source, precedence among sources, the last good content on disk |
//! | [`handlers`] | from changed objects to registry operations and push requests; a new push trigger (its `Reason` is in `model`) |
//! | [`registry`] | services, endpoints, workloads, automatic addresses |
//! | [`translate`] | Gateway API, service APIs and Ingress objects as Istio's, and their statuses |
//! | [`push`] | the debounce, the context that generation reads, the effects of its changes on proxies; a new index over objects |
//! | [`analysis`] | findings across objects, with the codes of `istioctl analyze`; a new check of configuration |
//! | [`generate`] | resources: `cluster`, `listener`, `route`, `endpoint`, `sds`, `secret`, `grpc`; a new field of Envoy's, SDS included |
//! | `simulate` | the decision of a proxy with given resources about a call; only with the feature `testing` |
//! | [`xds`] | the transport protocol: encoding, subscriptions, nonces, snapshots, limits; a resource is a name and bytes there |
//! | [`identity`] | identities of clients and their proofs: the certificate authority, TLS, join tokens |
//! | [`discovery`] | the content of each connected proxy: views, the mesh generator, the table of connections, the gRPC services |
//! | [`registration`] | WorkloadEntries of proxies that register themselves, for as long as they are connected |
//! | [`status`] | statuses of objects: the proxies that have each, the lease of the writer, the conditions that are written |
//! | [`admin`] | readiness, metrics, debug pages: reads the rooms above and changes nothing unasked |
//! | [`app`] | the composition root: makes the parts and joins them |
//! | [`cli`] | flags and commands, one file each |
//!
//! The page of `x.rs` states the responsibility of a room, its invariants, and its limits. The files in `x/` implement it.
//!
//! # A fault in one part
//!
//! A bad object is refused by name and its last good version stays. A part that panics, ends or hangs is begun anew under its
//! address, waits a while that grows, and asks upstream for everything; until it has that, readers keep the last good
//! snapshot and nothing is deleted. More faults than the allowed rate end the process with an error. `tests/lifecycle` shows
//! each of them.
pub mod admin;
pub mod analysis;
pub mod app;
pub mod cli;
pub mod discovery;
pub mod generate;
pub mod guide;
pub mod handlers;
pub mod identity;
pub mod model;
pub mod proto;
pub mod push;
pub mod registration;
pub mod registry;
pub mod runtime;
pub mod settings;
#[cfg(any(test, feature = "testing"))]
pub mod simulate;
pub mod sources;
pub mod status;
pub mod store;
pub mod telemetry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod translate;
pub mod xds;
