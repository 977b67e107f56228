//! Key sets (JWKS) of RequestAuthentications, fetched: a source whose content is keys instead of objects.
//!
//! Each location is polled at a steady interval. A failure keeps the last good keys, for a week at most. Locations, sizes,
//! fetches under way and their time are bounded. Addresses that a policy must not lead a control plane to (link-local ones,
//! metadata servers, and the blocked networks of the settings) are not connected to, and no redirect is followed.

mod fetch;
mod rules;

pub use fetch::HttpFetch;
pub use rules::KeyRules;

/// The source of key sets.
pub type KeySource = super::polled::PolledSource<KeyRules>;
