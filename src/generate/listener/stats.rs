//! Istio's metrics filter `istio.stats`, for each Prometheus provider of Telemetries or of the mesh's default ones. Only Istio's
//! build of Envoy has it.

use std::collections::BTreeMap;

use super::{
    filter::{http_filter, network_filter},
    inputs::Inputs,
    telemetry::{
        overrides::{self, ProviderMetrics, SideMetrics},
        providers,
    },
};
use crate::{
    generate::proxy_config::ListenerClass,
    model::NodeType,
    proto::{
        envoy::{config::listener::v3::Filter, extensions::filters::network::http_connection_manager::v3::HttpFilter},
        mesh::mesh_config::extension_provider::Provider,
        stats::{MetricConfig, PluginConfig, Reporter},
    },
};

const NAME: &str = "istio.stats";

/// The filters of one class of listeners, one for each provider.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatsFilters {
    /// Those of requests.
    pub http: Vec<HttpFilter>,
    /// Those of connections.
    pub tcp: Vec<Filter>,
}

impl StatsFilters {
    /// The filters of these metrics, by provider.
    #[must_use]
    pub fn of(inputs: &Inputs, class: ListenerClass, metrics: &BTreeMap<&str, ProviderMetrics>) -> Self {
        let is_prometheus = |name: &str| {
            let provider = providers::find(inputs.mesh(), name).and_then(|p| p.provider.as_ref());
            matches!(provider, Some(Provider::Prometheus(_)))
        };
        let istio = inputs.is_istio_proxy();
        let wanted = metrics.iter().filter(|(name, _)| istio && is_prometheus(name));
        let configs: Vec<PluginConfig> =
            wanted.filter_map(|(_, metrics)| config(metrics, class, inputs.view.node_type)).collect();
        Self {
            http: configs.iter().map(|config| http_filter(NAME, config)).collect(),
            tcp: configs.iter().map(|config| network_filter(NAME, config)).collect(),
        }
    }
}

/// The filter's configuration; `None` where nothing is counted.
#[must_use]
pub fn config(metrics: &ProviderMetrics, class: ListenerClass, node_type: NodeType) -> Option<PluginConfig> {
    let SideMetrics { disabled, overrides } = metrics.side_of(class);
    let metric = |(name, changed): (&&str, &overrides::MetricOverride)| {
        let set = changed.tags.iter().filter_map(|(tag, value)| Some(((*tag).to_string(), (*value)?.to_string())));
        let removed = changed.tags.iter().filter(|(_, value)| value.is_none());
        MetricConfig {
            dimensions: set.collect(),
            name: overrides::exported(name).to_string(),
            tags_to_remove: removed.map(|(tag, _)| (*tag).to_string()).collect(),
            drop: changed.disabled,
            ..MetricConfig::default()
        }
    };
    let reporter = if node_type == NodeType::Waypoint { Reporter::ServerGateway } else { Reporter::Unspecified };
    (!disabled).then(|| PluginConfig {
        // Only a sidecar's client side may trust the host header: for the others it is untrusted input.
        disable_host_header_fallback: class != ListenerClass::SidecarOutbound,
        tcp_reporting_duration: metrics.interval,
        metrics: overrides.iter().map(metric).collect(),
        reporter: reporter.into(),
        ..PluginConfig::default()
    })
}
