//! The admin server: health, metrics, debug pages, and a page for people. It reads what the other rooms publish and changes
//! nothing but what its caller asks for by name (a push, a deletion that is held back).
//!
//! Debug pages answer callers on the loopback interface only, unless they were opened, and no web site that a browser on this
//! machine shows. Private keys and the data of Secrets are never shown. Pages are built beside the threads that answer, one at
//! a time: health is answered whatever else is asked.

mod access;
mod building;
mod confirm;
mod document;
mod envoy_dump;
mod over_xds;
mod page;
mod pages;
mod proxies;
#[cfg(any(test, feature = "testing"))]
pub mod readers;
mod registry;
mod server;
mod state;

pub use building::Building;
pub use over_xds::PagesOverXds;
pub use server::{AdminServer, serve};
pub use state::AdminState;
