//! Istio's metrics filter `istio.stats`, as the mesh's default metrics providers ask for it. Only Istio's build of Envoy has
//! it. Telemetry objects, which refine it, will be read here.

use super::{
    builder::Builder,
    filter::{http_filter, network_filter},
};
use crate::{
    generate::proxy_config::ListenerClass,
    proto::{
        envoy::{config::listener::v3::Filter, extensions::filters::network::http_connection_manager::v3::HttpFilter},
        mesh::mesh_config::extension_provider::Provider,
        stats::PluginConfig,
    },
};

const NAME: &str = "istio.stats";

/// The HTTP filters, one per Prometheus provider.
#[must_use]
pub fn http(builder: &Builder, class: ListenerClass) -> Vec<HttpFilter> {
    let config = config(class);
    providers(builder).map(|()| http_filter(NAME, &config)).collect()
}

/// The network filters, one per Prometheus provider.
#[must_use]
pub fn tcp(builder: &Builder, class: ListenerClass) -> Vec<Filter> {
    let config = config(class);
    providers(builder).map(|()| network_filter(NAME, &config)).collect()
}

fn providers<'a>(builder: &'a Builder) -> impl Iterator<Item = ()> + 'a {
    let mesh = builder.mesh();
    let names = mesh.default_providers.as_ref().map_or(&[][..], |d| d.metrics.as_slice());
    let istio = builder.is_istio_proxy();
    let mut names: Vec<&String> = names.iter().collect();
    names.sort();
    names.dedup();
    names.into_iter().filter(move |_| istio).filter_map(|name| {
        let provider = mesh.extension_providers.iter().find(|p| p.name.eq_ignore_ascii_case(name))?;
        matches!(provider.provider, Some(Provider::Prometheus(_))).then_some(())
    })
}

fn config(class: ListenerClass) -> PluginConfig {
    // Only a sidecar's client side may trust the host header: for the others it is untrusted input.
    PluginConfig { disable_host_header_fallback: class != ListenerClass::SidecarOutbound, ..Default::default() }
}
