//! The lists of names that clients of one server have in common: each is parsed once.

use crate::xds::{views::claims::KnownClaims, wire::WrittenLists};

/// The lists that clients of one server wrote; all its sessions share them.
#[derive(Debug, Default)]
pub struct ClientLists {
    pub(super) written: WrittenLists,
    pub(super) claims: KnownClaims,
}
