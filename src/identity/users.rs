//! Users of this machine, as the system names them to a Unix socket.
//!
//! A user that is given an identity has that one. The user of this process and root could read the keys of this process, so the
//! word of their nodes is believed. All others have to present a token.

use std::collections::BTreeMap;

use crate::settings::UnixPeer;

/// The number by which Linux names users of other user namespaces: it may be any of them.
const NOBODY: u32 = 65534;

/// The identities of users.
#[derive(Debug, Clone, Default)]
pub struct LocalUsers {
    /// The user of this process.
    own: Option<u32>,
    identities: BTreeMap<u32, (String, String)>,
}

/// The trust in a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// Namespace and service account.
    Account(String, String),
    /// The identity that its node claims.
    Node,
    /// No identity: the user is not known here.
    Unknown,
}

impl LocalUsers {
    /// The user of this process, and those of this list.
    #[must_use]
    pub fn of(own: Option<u32>, peers: &[UnixPeer]) -> Self {
        let identity = |peer: &UnixPeer| (peer.uid, (peer.namespace.clone(), peer.service_account.clone()));
        Self { own, identities: peers.iter().map(identity).collect() }
    }

    pub(super) fn standing(&self, user: u32) -> Standing {
        match self.identities.get(&user) {
            Some((namespace, account)) => Standing::Account(namespace.clone(), account.clone()),
            None if user == 0 || user != NOBODY && Some(user) == self.own => Standing::Node,
            None => Standing::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_user_root_and_named_ones_are_believed() {
        let peers = ["101=shop/cart".parse().unwrap(), "7=shop/ledger".parse().unwrap()];
        let users = LocalUsers::of(Some(7), &peers);
        let account = |name: &str| Standing::Account("shop".to_string(), name.to_string());
        assert_eq!(users.standing(101), account("cart"));
        assert_eq!(users.standing(7), account("ledger"), "a named identity is the only one");
        assert_eq!((users.standing(0), users.standing(102)), (Standing::Node, Standing::Unknown));
        assert_eq!(LocalUsers::of(Some(8), &[]).standing(8), Standing::Node);
        let nobody = LocalUsers::of(Some(NOBODY), &[]);
        assert_eq!(nobody.standing(NOBODY), Standing::Unknown, "it may be a user of any container");
    }
}
