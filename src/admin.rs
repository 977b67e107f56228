//! The admin server: health, metrics, debug pages, and a page for people. It reads what the other rooms publish and changes
//! nothing but what its caller asks for by name (a push, a deletion that is held back).
//!
//! Debug pages answer callers on the loopback interface only, unless they were opened. Private keys and the data of Secrets
//! are never shown.

mod confirm;
mod document;
mod envoy_dump;
mod over_xds;
mod page;
mod proxies;
mod registry;
mod server;
mod state;

pub use over_xds::PagesOverXds;
pub use server::{AdminServer, serve};
pub use state::AdminState;
