//! The TLS that clients send to a port of a service: as the DestinationRule says, else as automatic mutual TLS decides.

use std::sync::Arc;

use crate::{
    model::Service,
    proto::networking::client_tls_settings::TlSmode,
    push::{MergedDestinationRule, PushContext, authn::MtlsMode, destination_rules::port_level_policy},
};

/// The TLS of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admin) enum ClientTls {
    /// None.
    Plain,
    /// Only the server proves itself.
    Simple,
    /// Both prove themselves, with certificates that the rule names.
    Certificate,
    /// Both prove themselves, with certificates of the mesh.
    Mutual,
    /// As [`ClientTls::Mutual`] where the workload has a proxy, else as [`ClientTls::Plain`].
    Auto,
    /// The program decides.
    AsSent,
}

impl ClientTls {
    pub(in crate::admin) const fn words(self) -> &'static str {
        match self {
            Self::Plain => "plain text",
            Self::Simple => "TLS without a certificate of the client",
            Self::Certificate => "TLS with a certificate of the client",
            Self::Mutual => "mutual TLS",
            Self::Auto => "mutual TLS where the workload has a proxy, plain text elsewhere",
            Self::AsSent => "as the program sends it: the service is outside of the mesh",
        }
    }

    /// Whether both sides prove themselves, where they can.
    pub(in crate::admin) const fn is_mutual(self) -> bool {
        matches!(self, Self::Certificate | Self::Mutual | Self::Auto)
    }
}

/// The TLS of clients for which this rule counts, and whether the rule decides it.
pub(in crate::admin) fn client_tls(
    context: &PushContext,
    service: &Service,
    rule: Option<&Arc<MergedDestinationRule>>,
    port: u32,
) -> (ClientTls, bool) {
    let policy = rule.and_then(|rule| rule.rule.traffic_policy.as_ref());
    let (of_port, _) = port_level_policy(policy, Some(port));
    if let Some(tls) = of_port.as_ref().and_then(|policy| policy.tls.as_ref()) {
        let mode = match tls.mode() {
            TlSmode::Disable => ClientTls::Plain,
            TlSmode::Simple => ClientTls::Simple,
            TlSmode::Mutual => ClientTls::Certificate,
            TlSmode::IstioMutual => ClientTls::Mutual,
        };
        return (mode, true);
    }
    let auto = context.mesh().config.enable_auto_mtls == Some(true);
    let mode = match context.service_mtls_mode(of_port.as_deref(), service, port) {
        MtlsMode::Permissive | MtlsMode::Strict if auto => ClientTls::Auto,
        MtlsMode::Unknown => ClientTls::AsSent,
        _ => ClientTls::Plain,
    };
    (mode, false)
}
