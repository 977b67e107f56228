//! The roots that proxies trust beside each other's own certificate authority: `ROOTCA` of stock Envoys, and PCDS for Istio's
//! agents (Istio's `PcdsGenerator`), which add them to their own `ROOTCA`.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::{proto::mesh::ProxyConfig, push::PushContext};

/// The roots for a stock Envoy, in PEM: those of the certificate authority, and those of `caCertificates`.
#[must_use]
pub fn roots(context: &PushContext) -> Bytes {
    let own = &context.inputs.certificates.roots;
    let text = String::from_utf8_lossy(own);
    let others: Vec<&str> = context.inputs.anchors.iter().map(|a| &**a).filter(|a| !text.contains(a.trim())).collect();
    if others.is_empty() {
        return own.clone();
    }
    let mut all = text.trim_end().to_string();
    all.push('\n');
    others.into_iter().for_each(|anchor| all.push_str(anchor));
    all.into()
}

/// The settings that PCDS carries: every root of the mesh. There are none without `ISTIO_MULTIROOT_MESH`.
#[must_use]
pub fn proxy_config(context: &PushContext) -> Option<ProxyConfig> {
    if !context.features().multiroot_mesh {
        return None;
    }
    let own = String::from_utf8_lossy(&context.inputs.certificates.roots).into_owned();
    let own = (!own.is_empty()).then_some(own);
    let all: BTreeSet<String> = own.into_iter().chain(context.inputs.anchors.iter().map(ToString::to_string)).collect();
    Some(ProxyConfig { ca_certificates_pem: all.into_iter().collect(), ..ProxyConfig::default() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        model::{Features, WorkloadCertificates},
        push::context::PushInputs,
    };

    fn context(multiroot: bool, anchors: &[&str]) -> PushContext {
        let certificates = WorkloadCertificates { roots: "own\n\n".into(), ..WorkloadCertificates::default() };
        let features = Features { multiroot_mesh: multiroot, ..Features::default() };
        let anchors: Vec<Arc<str>> = anchors.iter().map(|a| (*a).into()).collect();
        PushContext::build(PushInputs {
            certificates: Arc::new(certificates),
            features: Arc::new(features),
            anchors: anchors.into(),
            ..PushInputs::default()
        })
    }

    #[test]
    fn roots_are_those_of_the_authority_and_of_the_mesh_config() {
        assert_eq!(roots(&context(true, &[])), "own\n\n");
        assert_eq!(roots(&context(true, &["a\n", "own\n", "b\n"])), "own\na\nb\n");
    }

    #[test]
    fn istio_s_agents_get_them_where_the_mesh_has_several_roots() {
        assert_eq!(proxy_config(&context(false, &["a"])), None);
        assert_eq!(proxy_config(&context(true, &["a", "z"])).unwrap().ca_certificates_pem, ["a", "own\n\n", "z"]);
    }
}
