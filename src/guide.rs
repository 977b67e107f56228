//! The guide: one chapter for each task of a user. The chapters are Markdown files beside this page; `tests/lifecycle/guide.rs`
//! parses every command in them and validates every object.
//!
//! | chapter | content |
//! |---|---|
//! | [`first_mesh`] | a gateway and two versions of a service on one machine, in five minutes |
//! | [`install`] | systemd, compose, Helm, a container; the flags of istiod |
//! | [`files`] | a folder of YAML, Envoy as a gateway, a gRPC program |
//! | [`sources`] | precedence, readiness, the last good content on disk |
//! | [`gateway_api`] | a Gateway with every kind of route and a stock Envoy: certificates, grants, policies, statuses |
//! | [`proxyless_grpc`] | Python, Node, Go and Java without a proxy: routes, faults, retries, mutual TLS |
//! | [`kubernetes`] | a cluster, remote clusters, rights, status |
//! | [`upstream`] | config from istiod or another pilothouse, and config for them |
//! | [`registration`] | WorkloadGroups without a cluster |
//! | [`virtual_machines`] | two machines outside of any cluster: identities, systemd, health, zones, outages |
//! | [`identity`] | the secure listener, join tokens, the certificate authority, mutual TLS of stock Envoys |
//! | [`policies`] | access to workloads: AuthorizationPolicy, tokens, external authorizers |
//! | [`telemetry`] | access logs, tracing, Istio's metrics from a stock Envoy |
//! | [`envoy_filters`] | patches of the generated configuration |
//! | [`kinds`] | every kind that is read: its effect, its tests |
//! | [`commands`] | the subcommands, their exit codes, the debug pages |
//! | [`dashboard`] | the page on `/`: its views, its words, access to it |
//! | [`operations`] | day two: the configuration of proxies, objects in force, log levels, backup, sizes, reports, metrics, alerts, traces of pushes |
//! | [`ci`] | checks of a change before it is merged |
//! | [`migration`] | from istiod, beside it, and back |
//! | [`findings`] | every finding and error, with its way out |
//! | [`behaviour`] | faults, pushes, limits: the guarantees |

#[doc = include_str!("guide/behaviour.md")]
pub mod behaviour {}
#[doc = include_str!("guide/ci.md")]
pub mod ci {}
#[doc = include_str!("guide/commands.md")]
pub mod commands {}
// The first definition of a link counts: here the pictures themselves, in the file beside it their paths.
#[doc = concat!("[fleet-light]: data:image/webp;base64,", include_str!("guide/images/fleet-light.webp.base64"))]
#[doc = concat!("[fleet-dark]: data:image/webp;base64,", include_str!("guide/images/fleet-dark.webp.base64"))]
#[doc = concat!("[services]: data:image/webp;base64,", include_str!("guide/images/services.webp.base64"))]
#[doc = concat!("[refused]: data:image/webp;base64,", include_str!("guide/images/refused.webp.base64"))]
#[doc = ""]
#[doc = include_str!("guide/dashboard.md")]
pub mod dashboard {}
#[doc = include_str!("guide/envoy_filters.md")]
pub mod envoy_filters {}
#[doc = include_str!("guide/files.md")]
pub mod files {}
#[doc = include_str!("guide/findings.md")]
pub mod findings {}
#[doc = include_str!("guide/first_mesh.md")]
pub mod first_mesh {}
#[doc = include_str!("guide/gateway_api.md")]
pub mod gateway_api {}
#[doc = include_str!("guide/identity.md")]
pub mod identity {}
#[doc = include_str!("guide/install.md")]
pub mod install {}
#[doc = include_str!("guide/kinds.md")]
pub mod kinds {}
#[doc = include_str!("guide/kubernetes.md")]
pub mod kubernetes {}
#[doc = include_str!("guide/migration.md")]
pub mod migration {}
#[doc = include_str!("guide/operations.md")]
pub mod operations {}
#[doc = include_str!("guide/policies.md")]
pub mod policies {}
#[doc = include_str!("guide/proxyless_grpc.md")]
pub mod proxyless_grpc {}
#[doc = include_str!("guide/registration.md")]
pub mod registration {}
#[doc = include_str!("guide/sources.md")]
pub mod sources {}
#[doc = include_str!("guide/telemetry.md")]
pub mod telemetry {}
#[doc = include_str!("guide/upstream.md")]
pub mod upstream {}
#[doc = include_str!("guide/virtual_machines.md")]
pub mod virtual_machines {}
