//! The standing of connected clients: in sync, behind, or refusing what they are sent. The metrics and the dashboard count by it.

use crate::discovery::{Connection, TypeStatus};

/// The standing of a client; the worst of its types counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It refuses something: its last answer, or a resource that is held back from it for that.
    Refused,
    /// It lacks a part of the configuration in force.
    Behind,
    /// It holds all of it.
    InSync,
    /// It asks for nothing.
    Idle,
}

impl Standing {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Behind => "behind",
            Self::InSync => "in sync",
            Self::Idle => "asks for nothing",
        }
    }
}

/// The standing of a client.
pub(super) fn standing(connection: &Connection) -> Standing {
    let types: Vec<TypeStatus> = connection.served().iter().map(|kind| connection.status(kind)).collect();
    of(&types, connection.held_version() == u64::MAX)
}

/// The standing of a client with these types, which lacks nothing or something.
fn of(types: &[TypeStatus], lacks_nothing: bool) -> Standing {
    match () {
        () if types.iter().any(is_refused) => Standing::Refused,
        () if !types.iter().any(|status| status.watched) => Standing::Idle,
        () if lacks_nothing => Standing::InSync,
        () => Standing::Behind,
    }
}

pub(super) fn is_refused(status: &TypeStatus) -> bool {
    !status.last_error.is_empty() || !status.held_back.is_empty()
}

/// Istio's word for the state of a type.
pub(super) fn type_state(status: &TypeStatus) -> &'static str {
    match () {
        () if is_refused(status) => "ERROR",
        () if status.sent_nonce.is_empty() => "NOT SENT",
        () if status.sent_nonce == status.acked_nonce => "SYNCED",
        () => "STALE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_type_is_true() {
        let of = |sent: &str, acked: &str, error: &str| {
            let status = TypeStatus {
                sent_nonce: sent.to_string(),
                acked_nonce: acked.to_string(),
                last_error: error.to_string(),
                ..TypeStatus::default()
            };
            type_state(&status)
        };
        assert_eq!(
            [of("", "", ""), of("a", "", ""), of("a", "a", ""), of("b", "a", "no")],
            ["NOT SENT", "STALE", "SYNCED", "ERROR"]
        );
        assert_eq!(type_state(&held_back()), "ERROR", "a resource is held back although the rest was accepted");
    }

    fn held_back() -> TypeStatus {
        TypeStatus {
            sent_nonce: "a".into(),
            acked_nonce: "a".into(),
            held_back: vec![("x".into(), "no".into())],
            watched: true,
            ..Default::default()
        }
    }

    #[test]
    fn the_worst_type_of_a_client_counts() {
        let watched = TypeStatus { watched: true, ..TypeStatus::default() };
        assert_eq!(of(&[watched.clone(), held_back()], true), Standing::Refused);
        assert_eq!(of(&[TypeStatus { last_error: "no".into(), ..watched.clone() }], false), Standing::Refused);
        assert_eq!(
            (of(std::slice::from_ref(&watched), false), of(&[watched], true)),
            (Standing::Behind, Standing::InSync)
        );
        assert_eq!(of(&[TypeStatus::default()], true), Standing::Idle);
        assert!(Standing::Refused < Standing::Behind && Standing::Behind < Standing::InSync);
    }
}
