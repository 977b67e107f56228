//! Settings of the Unix socket of xDS.

use std::{path::PathBuf, str::FromStr};

/// A Unix socket for clients on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixSocketSettings {
    /// Path of the socket.
    pub path: PathBuf,
    /// Mode of its file.
    pub mode: u32,
    /// Users with an identity.
    pub peers: Vec<UnixPeer>,
}

/// The identity of a user of this machine; written `UID=NAMESPACE/SERVICE-ACCOUNT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixPeer {
    /// Number of the user.
    pub uid: u32,
    /// Namespace of the workload.
    pub namespace: String,
    /// Service account of the workload.
    pub service_account: String,
}

impl FromStr for UnixPeer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
        };
        let parsed = text.split_once('=').and_then(|(uid, account)| {
            let (namespace, service_account) = account.split_once('/')?;
            Some((uid.parse().ok()?, namespace, service_account))
        });
        match parsed {
            Some((uid, namespace, service_account)) if is_name(namespace) && is_name(service_account) => {
                Ok(Self { uid, namespace: namespace.to_string(), service_account: service_account.to_string() })
            }
            _ => Err(format!("{text:?} is not UID=NAMESPACE/SERVICE-ACCOUNT")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_user_and_an_account() {
        let peer = UnixPeer { uid: 101, namespace: "shop".into(), service_account: "cart".into() };
        assert_eq!("101=shop/cart".parse(), Ok(peer));
        for wrong in [
            "",
            "101",
            "envoy=shop/cart",
            "101=shop",
            "101=shop/",
            "101=/cart",
            "101=a/b/c",
            "-1=a/b",
            "4294967296=a/b",
        ] {
            assert_eq!(wrong.parse::<UnixPeer>(), Err(format!("{wrong:?} is not UID=NAMESPACE/SERVICE-ACCOUNT")));
        }
    }
}
