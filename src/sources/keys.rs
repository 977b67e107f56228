//! Key sets (JWKS) of RequestAuthentications, and of the issuer of clients' tokens, fetched: a source whose content is keys instead of objects.
//!
//! Each location is polled at a steady interval. A failure keeps the last good keys, for a week at most. Locations, sizes,
//! fetches under way and their time are bounded. Addresses that a policy must not lead a control plane to (link-local ones,
//! metadata servers, and the blocked networks of the settings) are not connected to, and no redirect is followed.

mod fetch;
mod issuer;
mod rules;

pub use fetch::HttpFetch;
pub use issuer::IssuerKeyRules;
pub use rules::KeyRules;

/// The source of the key set of the issuer of clients' tokens.
pub type IssuerKeySource = super::polled::PolledSource<IssuerKeyRules>;

/// The source of key sets.
pub type KeySource = super::polled::PolledSource<KeyRules>;
