//! The encryption between a client and a workload, from what the one sends and the other accepts.

use crate::{admin::describe::client_tls::ClientTls, push::authn::MtlsMode};

/// The encryption of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traffic {
    /// Mutual TLS: both sides are known.
    Mutual,
    /// TLS that ends in the program behind the proxy, or outside of the mesh.
    Tls,
    /// Plain text.
    Plain,
    /// As the program sends it.
    AsSent,
    /// No connection comes about: one side wants what the other does not.
    Conflict,
}

impl Traffic {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Mutual => "mutual TLS",
            Self::Tls => "TLS",
            Self::Plain => "plain text",
            Self::AsSent => "as sent",
            Self::Conflict => "conflict",
        }
    }
}

/// The encryption of a connection to a workload with this mode. One without a proxy accepts what its program does.
pub(super) fn between(client: ClientTls, server: MtlsMode, has_proxy: bool) -> Traffic {
    let strict = has_proxy && server == MtlsMode::Strict;
    let accepts_mutual = has_proxy && server != MtlsMode::Disable;
    match client {
        ClientTls::Auto if accepts_mutual => Traffic::Mutual,
        ClientTls::Auto => Traffic::Plain,
        ClientTls::Mutual if accepts_mutual => Traffic::Mutual,
        ClientTls::Mutual => Traffic::Conflict,
        ClientTls::Plain | ClientTls::Simple | ClientTls::Certificate if strict => Traffic::Conflict,
        ClientTls::Plain => Traffic::Plain,
        ClientTls::Simple | ClientTls::Certificate => Traffic::Tls,
        ClientTls::AsSent => Traffic::AsSent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_wants_and_the_other_does_not_is_a_conflict() {
        use ClientTls::{AsSent, Auto, Mutual, Plain, Simple};
        use MtlsMode::{Disable, Permissive, Strict};
        for (client, server, has_proxy, expected) in [
            (Auto, Strict, true, Traffic::Mutual),
            (Auto, Permissive, true, Traffic::Mutual),
            (Auto, Disable, true, Traffic::Plain),
            (Auto, Strict, false, Traffic::Plain),
            (Mutual, Permissive, true, Traffic::Mutual),
            (Mutual, Disable, true, Traffic::Conflict),
            (Mutual, Strict, false, Traffic::Conflict),
            (Plain, Strict, true, Traffic::Conflict),
            (Plain, Permissive, true, Traffic::Plain),
            (Plain, Strict, false, Traffic::Plain),
            (Simple, Strict, true, Traffic::Conflict),
            (Simple, Permissive, true, Traffic::Tls),
            (AsSent, Permissive, false, Traffic::AsSent),
        ] {
            assert_eq!(between(client, server, has_proxy), expected, "{client:?} {server:?} {has_proxy}");
        }
    }
}
