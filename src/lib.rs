//! **pilothouse** is an Istio-API control plane in one binary. It reads Istio objects (and the Kubernetes objects beside them)
//! from several sources, keeps them in one config cache, turns them into one service registry, and serves xDS to stock Envoy and
//! to proxyless gRPC programs. What a VirtualService means in Istio it means here: what is generated is compared with what
//! istiod itself sends.
//!
//! # The way of a change
//!
//! ```text
//!   folders      Kubernetes API      another xDS server             sources     one actor each
//!      \________________|________________/
//!                       | batches: one in flight, its reply is the back-pressure
//!                       v
//!       what each source holds -> the one aggregate view            store       one actor
//!                       | events: old, new; add, update, delete
//!                       v
//!       what does it mean?  an operation, a push, or nothing        handlers    one actor for each type
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
//! Data flows down. A room may use the rooms above it and never one below; who pushes declares the port that it pushes into,
//! and who takes implements it. Only one thing travels up: "send me everything again", after a fault.
//! `tests/architecture` holds these rules.
//!
//! # The rooms, and where a new line belongs
//!
//! | room | what lives there |
//! |---|---|
//! | [`proto`] | generated messages of Envoy and Istio, and proto3 JSON; a new message begins in `proto/` or in its `build.rs` |
//! | [`model`] | the vocabulary: kinds, objects, hosts, services, endpoints; a kind's decoding and validation |
//! | [`settings`] | what the process is told at its start, a struct for each room |
//! | [`telemetry`] | logs and metrics, set up once |
//! | [`runtime`] | how actors live: supervision, back-off, readiness, the end of the process |
//! | [`sources`] | from the outside world to batches: files, Kubernetes, xDS; a new place to read from |
//! | [`store`] | what each source holds, precedence, writes |
//! | [`handlers`] | what an event means, a file for each handler type |
//! | [`registry`] | services, endpoints, workloads, automatic addresses |
//! | [`translate`] | Gateway API, service APIs and Ingress objects as Istio's, and their statuses |
//! | [`push`] | when to push, to whom, and the context that everything is generated from; a new index over objects |
//! | [`generate`] | resources: `cluster`, `listener`, `route`, `endpoint`, `secret`, `grpc`; a new field of Envoy's |
//! | `simulate` | what a proxy that holds these resources would do with a call; only with the feature `testing` |
//! | [`xds`] | the transport protocol: encoding, subscriptions, nonces, snapshots, limits of connections; nothing there knows a cluster |
//! | [`identity`] | who a client is, and the certificates that prove it: the certificate authority, TLS, join tokens |
//! | [`discovery`] | what a connected proxy gets: views, the mesh generator, the table of connections, the gRPC services |
//! | [`registration`] | WorkloadEntries of proxies that register themselves, for as long as they are connected |
//! | [`status`] | what became of each object: how many proxies have it, who may write it back (a lease), what is written |
//! | [`admin`] | readiness, metrics, debug pages: reads the rooms above and changes nothing unasked |
//! | [`app`] | the composition root: which parts there are and who is joined to whom |
//! | [`cli`] | flags and commands, one file each |
//!
//! `x.rs` is a room's face: what it owns, what always holds, what it never does. `x/` is its furniture.
//!
//! # A fault in one part
//!
//! A bad object is refused by name and its last good version stays. A part that panics, ends or hangs is begun anew under its
//! address, waits a while that grows, and asks upstream for everything; until it has that, readers keep the last good
//! snapshot and nothing is deleted. More faults than the allowed rate end the process with an error. `tests/lifecycle` shows
//! each of them.
pub mod admin;
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
