//! The filter chains of a port, by its mode of mutual TLS and by the knowledge of its protocol (Istio's
//! `filterchain_options.go`).
//!
//! A chain is told from the others by the transport protocol that the TLS inspector found and by the application protocol:
//! Istio's clients name `istio…` protocols on mutual TLS, the HTTP inspector finds plaintext HTTP.

use crate::push::authn::MtlsMode;

/// One chain of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchOptions {
    /// Application protocols to match; empty is any.
    pub application_protocols: Vec<String>,
    /// `tls` or `raw_buffer`.
    pub transport_protocol: &'static str,
    /// The chain has a connection manager; otherwise a TCP proxy.
    pub http: bool,
    /// TLS ends here.
    pub terminates: bool,
}

/// The knowledge of a port's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// The port speaks HTTP.
    Http,
    /// The port speaks another protocol.
    Tcp,
    /// No protocol is declared: Envoy detects it.
    Nothing,
}

const MTLS_HTTP: [&str; 3] = ["istio-http/1.0", "istio-http/1.1", "istio-h2"];
const MTLS_TCP: [&str; 2] = ["istio-peer-exchange", "istio"];
const MTLS_ANY: [&str; 5] = ["istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2"];

fn option(names: &[&str], transport_protocol: &'static str, http: bool, terminates: bool) -> MatchOptions {
    let application_protocols = names.iter().map(|n| (*n).to_string()).collect();
    MatchOptions { application_protocols, transport_protocol, http, terminates }
}

fn mutual(names: &[&str], http: bool) -> MatchOptions {
    option(names, "tls", http, true)
}

fn plain(names: &[&str], http: bool) -> MatchOptions {
    option(names, "raw_buffer", http, false)
}

/// TLS of the application's own, which goes through as it is.
fn opaque_tls() -> MatchOptions {
    option(&[], "tls", false, false)
}

/// The one chain of a port whose TLS a Sidecar ends with certificates of its own.
#[must_use]
pub fn own_tls(known: Known) -> Vec<MatchOptions> {
    match known {
        Known::Http => vec![mutual(&[], true)],
        Known::Tcp => vec![mutual(&[], false)],
        // A chain must be one or the other, and there is no inspector behind TLS.
        Known::Nothing => Vec::new(),
    }
}

/// The chains of a port. `plaintext_http` are the protocols by which the HTTP inspector tells HTTP.
#[must_use]
pub fn of_port(mode: MtlsMode, known: Known, plaintext_http: &[String]) -> Vec<MatchOptions> {
    let sniffed: Vec<&str> = plaintext_http.iter().map(String::as_str).collect();
    match (mode, known) {
        (MtlsMode::Strict, Known::Http) => vec![mutual(&[], true)],
        (MtlsMode::Strict, Known::Tcp) => vec![mutual(&[], false)],
        (MtlsMode::Strict, Known::Nothing) => vec![mutual(&MTLS_HTTP, true), mutual(&[], false)],
        (MtlsMode::Permissive, Known::Http) => vec![mutual(&MTLS_ANY, true), plain(&[], true)],
        (MtlsMode::Permissive, Known::Tcp) => vec![mutual(&MTLS_ANY, false), opaque_tls(), plain(&[], false)],
        (MtlsMode::Permissive, Known::Nothing) => vec![
            mutual(&MTLS_HTTP, true),
            plain(&sniffed, true),
            mutual(&MTLS_TCP, false),
            plain(&[], false),
            opaque_tls(),
        ],
        (MtlsMode::Disable | MtlsMode::Unknown, Known::Http) => vec![plain(&[], true)],
        (MtlsMode::Disable | MtlsMode::Unknown, Known::Tcp) => vec![plain(&[], false)],
        (MtlsMode::Disable | MtlsMode::Unknown, Known::Nothing) => vec![plain(&sniffed, true), plain(&[], false)],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_chains_of_a_port_match_alike() {
        let http = ["http/1.1".to_string(), "h2c".to_string()];
        for mode in [MtlsMode::Unknown, MtlsMode::Disable, MtlsMode::Permissive, MtlsMode::Strict] {
            for known in [Known::Http, Known::Tcp, Known::Nothing] {
                let chains = of_port(mode, known, &http);
                let matches: BTreeSet<_> =
                    chains.iter().map(|c| (c.transport_protocol, c.application_protocols.clone())).collect();
                assert_eq!(matches.len(), chains.len(), "{mode:?} {known:?}");
                assert!(mode == MtlsMode::Strict || chains.iter().any(|c| !c.terminates), "{mode:?} {known:?}");
                assert!(mode != MtlsMode::Strict || chains.iter().all(|c| c.terminates), "{mode:?} {known:?}");
            }
        }
    }
}
