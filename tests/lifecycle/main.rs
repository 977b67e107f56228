//! The whole process: it follows its sources, survives faults of its own parts without taking anything from a proxy, and
//! ends in good order. One file per failure mode.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod aliases;
mod analyze;
mod attacks;
mod believed;
mod binary;
mod bug_report;
mod bulletins;
mod certificate;
mod collector;
mod confirm;
mod context_fault;
mod dashboard;
mod debug;
mod describe;
mod descriptors;
mod drain;
mod files;
mod forged;
mod frames;
mod generator_fault;
mod guide;
mod handler_fault;
mod handover;
mod identity;
mod image;
mod last_good;
mod logs;
mod loopback;
mod names;
mod omissions;
mod operations;
mod packages;
mod pages;
mod policies;
#[path = "../clients/ports.rs"]
mod ports;
mod proofs;
mod proxy;
mod proxy_config;
mod queues;
mod references;
mod registration;
mod registration_state;
mod registry_fault;
mod rendering;
mod restarts;
mod server_certificate;
#[path = "../clients/skipped.rs"]
mod skipped;
mod source_fault;
mod stage;
mod status;
mod store_fault;
mod systemd;
mod told;
mod traces;
mod unix;
mod upstream;
mod widening;
mod wrong_inputs;
