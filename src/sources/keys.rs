//! Key sets (JWKS) of RequestAuthentications, fetched: a source whose content is keys instead of objects.
//!
//! Each location is fetched again in a steady rhythm, after a failure sooner; a failure keeps the keys of before, for a week at
//! most; a location that no policy has any more is forgotten. Nobody waits for a fetch: keys are handed over when they
//! come. Locations, sizes, fetches under way and their time are bounded. Addresses that only attackers ask a control plane
//! to read (link-local ones, metadata servers, those that the settings block) are not connected to, and no redirect is followed.

mod fetch;
mod source;
mod table;

pub use fetch::HttpFetch;
pub use source::{Fetch, KeySink, KeySource, WantedKeys};
pub use table::{KeyTable, Wanted};
