//! Versions, cipher suites and key exchanges of the secure listener, as flags and the compliance policy restrict them.

use std::sync::Arc;

use tokio_rustls::rustls::{
    CipherSuite, ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring::kx_group},
    version::{TLS12, TLS13},
};

use super::TlsError;
use crate::{
    model::features::CompliancePolicy,
    settings::{ListenerTls, TlsVersion},
};

/// Those that FIPS 140 approves.
const AES_GCM: [CipherSuite; 6] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
];

/// The cryptography that is left, and the versions. The policy is stronger than the flags, as in Istio.
pub(super) fn provider(
    rules: &ListenerTls,
    compliance: CompliancePolicy,
) -> Result<(Arc<CryptoProvider>, Vec<&'static SupportedProtocolVersion>), TlsError> {
    let mut provider = (*super::provider()).clone();
    let mut versions = match rules.min_version {
        TlsVersion::V1_2 => vec![&TLS12, &TLS13],
        TlsVersion::V1_3 => vec![&TLS13],
    };
    match compliance {
        CompliancePolicy::None => only_named(&mut provider, &rules.cipher_suites)?,
        CompliancePolicy::Fips140_2 => {
            versions = vec![&TLS12];
            provider.cipher_suites.retain(|suite| AES_GCM.contains(&suite.suite()));
            provider.kx_groups = vec![kx_group::SECP256R1];
        }
        CompliancePolicy::Fips140_3 => {
            versions = vec![&TLS12, &TLS13];
            provider.cipher_suites.retain(|suite| AES_GCM.contains(&suite.suite()));
            provider.kx_groups = vec![kx_group::SECP256R1, kx_group::SECP384R1];
        }
        CompliancePolicy::Pqc => return Err(TlsError::PostQuantum),
    }
    Ok((Arc::new(provider), versions))
}

/// Leaves the suites of TLS 1.2 that are named; those of TLS 1.3 always stay, as in Go.
fn only_named(provider: &mut CryptoProvider, names: &[String]) -> Result<(), TlsError> {
    if names.is_empty() {
        return Ok(());
    }
    let of_go = |suite: &SupportedCipherSuite| format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1);
    let known: Vec<String> = provider.cipher_suites.iter().map(of_go).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        return Err(TlsError::Suite(unknown.clone(), known.join(", ")));
    }
    let is_left = |suite: &SupportedCipherSuite| {
        suite.version().version == ProtocolVersion::TLSv1_3 || names.contains(&of_go(suite))
    };
    provider.cipher_suites.retain(is_left);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of suites, versions and key exchanges.
    fn of(rules: &ListenerTls, compliance: CompliancePolicy) -> (Vec<CipherSuite>, usize, usize) {
        let (provider, versions) = provider(rules, compliance).unwrap();
        let suites = provider.cipher_suites.iter().map(SupportedCipherSuite::suite).collect();
        (suites, versions.len(), provider.kx_groups.len())
    }

    #[test]
    fn named_suites_are_left_and_unknown_ones_are_told() {
        let name = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_string();
        let rules = ListenerTls { cipher_suites: vec![name], min_version: TlsVersion::V1_3 };
        let (suites, versions, _) = of(&rules, CompliancePolicy::None);
        assert_eq!(suites.iter().filter(|suite| AES_GCM.contains(suite)).count(), 3, "{suites:?}");
        assert!(!suites.contains(&CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256));
        assert_eq!(versions, 1);
        let rules = ListenerTls { cipher_suites: vec!["TLS_RSA_WITH_RC4_128_SHA".into()], ..ListenerTls::default() };
        let error = provider(&rules, CompliancePolicy::None).err().unwrap().to_string();
        assert!(error.contains("TLS_RSA_WITH_RC4_128_SHA") && error.contains("TLS_AES_128_GCM_SHA256"), "{error}");
    }

    #[test]
    fn a_policy_is_stronger_than_flags_and_one_that_cannot_be_kept_ends_the_start() {
        let rules = ListenerTls {
            cipher_suites: vec!["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256".into()],
            min_version: TlsVersion::V1_3,
        };
        for (policy, versions, groups) in [(CompliancePolicy::Fips140_2, 1, 1), (CompliancePolicy::Fips140_3, 2, 2)] {
            let (suites, found, kx) = of(&rules, policy);
            assert!(suites.iter().all(|suite| AES_GCM.contains(suite)), "{suites:?}");
            assert_eq!((found, kx), (versions, groups));
        }
        assert!(matches!(provider(&rules, CompliancePolicy::Pqc), Err(TlsError::PostQuantum)));
    }
}
