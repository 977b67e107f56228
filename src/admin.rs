//! The admin server: health, metrics, debug pages, and the dashboard. It reads the published state of the other rooms and
//! changes nothing beyond an explicit request (a push, a deletion that is held back).
//!
//! Pages answer callers on the loopback interface, others only with a proof of identity or where they were opened, and never a
//! web site in a browser on this machine, from which the dashboard is told. Private keys and the data of Secrets are never shown.
//! Pages are built beside the threads that answer, one at a time, so a slow page never delays health.

mod access;
mod analysis;
mod building;
mod cache;
mod confirm;
mod dashboard;
mod describe;
mod document;
mod envoy_dump;
mod flags;
mod measures;
mod memory;
mod over_xds;
mod page;
mod pages;
mod parts;
mod proxies;
#[cfg(any(test, feature = "testing"))]
pub mod readers;
mod registry;
mod scopes;
mod server;
mod standing;
mod state;

pub use building::Building;
pub use measures::Measures;
pub use memory::Dashboard;
pub use over_xds::PagesOverXds;
pub use server::{AdminServer, serve};
pub use state::{AdminState, DebugAccess};
