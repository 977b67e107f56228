//! TLS settings of a server: Gateway servers and Sidecar ingress listeners.

use std::collections::BTreeSet;

use super::check::Check;
use crate::{
    model::cipher,
    proto::networking::{
        ServerTlsSettings,
        server_tls_settings::{TlSmode, TlsProtocol},
    },
};

pub(super) fn validate(c: &mut Check, tls: &ServerTlsSettings) {
    ciphers(c, tls);
    if tls.mode() == TlSmode::IstioMutual {
        return istio_mutual(c, tls);
    }
    let named = !tls.credential_name.is_empty() || !tls.credential_names.is_empty();
    let files = !tls.server_certificate.is_empty() || !tls.private_key.is_empty() || !tls.ca_certificates.is_empty();
    let lists = !tls.tls_certificates.is_empty();
    if matches!(tls.mode(), TlSmode::Passthrough | TlSmode::AutoPassthrough)
        && (named || files || lists || !tls.ca_crl.is_empty())
    {
        c.warn("passthrough uses no certificates; those given are ignored");
    }
    let sources = [
        !tls.server_certificate.is_empty() && !tls.private_key.is_empty(),
        !tls.credential_name.is_empty(),
        !tls.credential_names.is_empty(),
        lists,
    ];
    c.need(
        sources.iter().filter(|s| **s).count() < 2,
        "only one of credentialName, credentialNames, serverCertificate/privateKey and tlsCertificates may be set",
    );
    let mutual = matches!(tls.mode(), TlSmode::Mutual | TlSmode::OptionalMutual);
    let terminates = mutual || tls.mode() == TlSmode::Simple;
    if terminates && named {
        return;
    }
    if terminates {
        certificates(c, tls, mutual);
    }
    if !tls.ca_crl.is_empty() {
        c.need(tls.credential_name.is_empty(), "caCrl: with credentialName the list belongs into the credential");
        c.need(tls.mode() != TlSmode::Simple, "caCrl: mode SIMPLE checks no client certificates; remove it");
    }
}

fn ciphers(c: &mut Check, tls: &ServerTlsSettings) {
    let old = matches!(tls.min_protocol_version(), TlsProtocol::Tlsv10 | TlsProtocol::Tlsv11);
    if old && tls.cipher_suites.is_empty() {
        c.warn("minProtocolVersion below TLSV1_2 needs cipherSuites: the defaults hold none that fit");
    }
    let mut seen = BTreeSet::new();
    for name in &tls.cipher_suites {
        if !name.is_empty() && !cipher::is_known(name) {
            c.warn(format_args!("cipherSuites: {name:?} is not known and is ignored"));
        } else if !seen.insert(name) {
            c.warn(format_args!("cipherSuites: {name:?} is given twice"));
        }
    }
}

fn istio_mutual(c: &mut Check, tls: &ServerTlsSettings) {
    for (name, unset) in [
        ("serverCertificate", tls.server_certificate.is_empty()),
        ("privateKey", tls.private_key.is_empty()),
        ("caCertificates", tls.ca_certificates.is_empty()),
        ("tlsCertificates", tls.tls_certificates.is_empty()),
        ("credentialName", tls.credential_name.is_empty()),
        ("credentialNames", tls.credential_names.is_empty()),
    ] {
        c.need(unset, format_args!("{name}: mode ISTIO_MUTUAL uses the workload's own certificate; remove it"));
    }
}

fn certificates(c: &mut Check, tls: &ServerTlsSettings, mutual: bool) {
    c.need(!mutual || !tls.ca_certificates.is_empty(), "caCertificates is required to check client certificates");
    if tls.tls_certificates.len() > 2 {
        c.warn("tlsCertificates: at most 2 are supported");
    }
    let pair = |c: &mut Check, certificate: &str, key: &str| {
        c.need(!certificate.is_empty(), "serverCertificate is required (or credentialName)");
        c.need(!key.is_empty(), "privateKey is required (or credentialName)");
    };
    if tls.tls_certificates.is_empty() {
        pair(c, &tls.server_certificate, &tls.private_key);
    }
    c.each("tlsCertificates", &tls.tls_certificates, |c, t| pair(c, &t.server_certificate, &t.private_key));
}
