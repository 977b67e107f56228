//! SPIFFE bundles of `caCertificates`: their URLs are read from the mesh config in force, and the root certificates are an
//! input of the next context.

use std::sync::Arc;

use super::Inputs;
use crate::{
    discovery::XdsServerHandle,
    model::{PushRequest, Reason, XdsUpdater, trust_anchors},
    sources::{
        keys::HttpFetch,
        polled::Demand,
        trust_bundles::{BundleRules, BundleSource},
    },
};

/// The source of these certificates. Without `ISTIO_MULTIROOT_MESH` none are fetched.
pub(super) fn source(inputs: &Arc<Inputs>, xds: &XdsServerHandle) -> Arc<BundleSource> {
    let (published, inputs, xds) = (xds.state().clone(), inputs.clone(), xds.clone());
    let level = published.publications();
    let is_wanted = inputs.features.multiroot_mesh;
    if !is_wanted && !inputs.mesh().config.ca_certificates.is_empty() {
        tracing::warn!("caCertificates of the mesh config add no roots: ISTIO_MULTIROOT_MESH is not set");
    }
    let read = move || {
        let context = published.current().filter(|_| is_wanted).map(|p| p.context.clone());
        let urls = |context: &Arc<crate::push::PushContext>| {
            trust_anchors::locations(&context.mesh().config).map(|url| (url, ())).collect()
        };
        context.as_ref().map(urls).unwrap_or_default()
    };
    let demand = Demand { level, read: Box::new(read) };
    // The mesh config is the operator's, whose own networks may hold the servers of bundles.
    Arc::new(BundleSource::new(BundleRules, demand, HttpFetch::new(&[]), move |anchors| {
        inputs.set_fetched_anchors(anchors);
        xds.config_update(PushRequest::everything(Reason::Secret));
    }))
}
