//! `COMPLIANCE_POLICY`: restrictions over all other TLS settings (Istio's `EnforceCompliance`).
//!
//! Istio leaves fields empty whose defaults are compliant in its FIPS build of Envoy. A stock Envoy has other defaults, so
//! the values are written out for it.

use crate::{
    model::features::CompliancePolicy,
    proto::envoy::extensions::transport_sockets::tls::v3::{
        CommonTlsContext, TlsParameters,
        tls_parameters::{CompliancePolicy as OfEnvoy, TlsProtocol},
    },
};

/// The cipher suites of TLS 1.2 that FIPS 140 approves.
const CIPHERS: [&str; 4] = [
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
];

/// Restricts a context. It has to be the last step: no setting is stronger.
pub fn enforce(policy: CompliancePolicy, istio_proxy: bool, common: &mut CommonTlsContext) {
    if policy == CompliancePolicy::None {
        return;
    }
    let parameters = common.tls_params.get_or_insert_default();
    match policy {
        CompliancePolicy::None => {}
        CompliancePolicy::Fips140_2 => fips_140_2(istio_proxy, parameters),
        CompliancePolicy::Fips140_3 => parameters.compliance_policies = vec![OfEnvoy::Fips202205.into()],
        CompliancePolicy::Pqc => {
            parameters.tls_minimum_protocol_version = TlsProtocol::TlSv13.into();
            parameters.cipher_suites = CIPHERS.map(String::from).to_vec();
            parameters.ecdh_curves = vec!["X25519MLKEM768".to_string()];
        }
    }
}

fn fips_140_2(istio_proxy: bool, parameters: &mut TlsParameters) {
    parameters.tls_minimum_protocol_version = TlsProtocol::TlSv12.into();
    parameters.tls_maximum_protocol_version = TlsProtocol::TlSv12.into();
    parameters.cipher_suites.retain(|suite| CIPHERS.contains(&suite.as_str()));
    parameters.ecdh_curves.clear();
    if !istio_proxy {
        parameters.ecdh_curves.push("P-256".to_string());
        if parameters.cipher_suites.is_empty() {
            parameters.cipher_suites = CIPHERS.map(String::from).to_vec();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enforced(policy: CompliancePolicy, istio_proxy: bool, suites: &[&str]) -> Option<TlsParameters> {
        let given = TlsParameters {
            cipher_suites: suites.iter().map(ToString::to_string).collect(),
            ecdh_curves: vec!["X25519".to_string()],
            ..TlsParameters::default()
        };
        let mut common = CommonTlsContext { tls_params: Some(given), ..CommonTlsContext::default() };
        enforce(policy, istio_proxy, &mut common);
        common.tls_params
    }

    #[test]
    fn no_policy_touches_nothing() {
        let mut common = CommonTlsContext::default();
        enforce(CompliancePolicy::None, true, &mut common);
        assert_eq!(common, CommonTlsContext::default());
    }

    #[test]
    fn fips_140_2_is_tls_1_2_with_its_ciphers() {
        let suites = ["ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-RSA-AES128-GCM-SHA256"];
        for (istio_proxy, suites, left, curves) in [
            (true, &suites[..], &suites[1..], &[][..]),
            (true, &suites[..1], &[], &[]),
            (false, &suites[..], &suites[1..], &["P-256"]),
            (false, &suites[..1], &CIPHERS[..], &["P-256"]),
        ] {
            let made = enforced(CompliancePolicy::Fips140_2, istio_proxy, suites).unwrap();
            let twelve = i32::from(TlsProtocol::TlSv12);
            assert_eq!((made.tls_minimum_protocol_version, made.tls_maximum_protocol_version), (twelve, twelve));
            assert_eq!(
                (&made.cipher_suites[..], &made.ecdh_curves[..]),
                (
                    &left.iter().map(ToString::to_string).collect::<Vec<_>>()[..],
                    &curves.iter().map(ToString::to_string).collect::<Vec<_>>()[..]
                )
            );
        }
    }

    #[test]
    fn the_other_policies_replace_ciphers_and_curves() {
        let made = enforced(CompliancePolicy::Fips140_3, false, &[]).unwrap();
        assert_eq!(made.compliance_policies, [i32::from(OfEnvoy::Fips202205)]);
        let made = enforced(CompliancePolicy::Pqc, false, &["ECDHE-RSA-CHACHA20-POLY1305"]).unwrap();
        assert_eq!(made.tls_minimum_protocol_version, i32::from(TlsProtocol::TlSv13));
        assert_eq!(made.ecdh_curves, ["X25519MLKEM768"]);
        assert_eq!(made.cipher_suites, CIPHERS);
    }
}
