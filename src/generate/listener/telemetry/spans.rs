//! The tracing of Telemetries merged, for one side of a workload (Istio's `Telemetries.Tracing`).

use std::collections::BTreeMap;

use super::{
    mode::mode,
    providers::{self, defaults},
};
use crate::{
    generate::proxy_config::ListenerClass,
    proto::{
        istio::telemetry::v1alpha1::{Telemetry, WorkloadMode, tracing::CustomTag},
        mesh::{MeshConfig, mesh_config::ExtensionProvider},
    },
};

/// Tracing of one side of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanSpec<'a> {
    /// The name of the provider, where one is named.
    pub name: Option<&'a str>,
    /// The provider.
    pub provider: Option<&'a ExtensionProvider>,
    /// No spans are reported.
    pub disabled: bool,
    /// Percentage of requests that are traced, where no client decided.
    pub sampling: Option<f64>,
    /// Tags; those of the proxy's settings count where there are none.
    pub tags: Option<&'a BTreeMap<String, CustomTag>>,
    /// The request id says whether a request is traced.
    pub use_request_id: bool,
    /// Istio's own tags are set.
    pub istio_tags: bool,
    /// The context of the trace is not sent on.
    pub no_propagation: bool,
}

/// The tracing of one class of listeners; `None` where neither a Telemetry nor a default provider says anything, so that the
/// mesh settings count.
#[must_use]
pub fn merge<'a>(specs: &[&'a Telemetry], mesh: &'a MeshConfig, class: ListenerClass) -> Option<SpanSpec<'a>> {
    let default = defaults(mesh, |d| &d.tracing).first().map(String::as_str);
    if default.is_none() && specs.iter().all(|t| t.tracing.is_empty()) {
        return None;
    }
    let mut spec = SpanSpec {
        name: default,
        provider: default.and_then(|name| providers::find(mesh, name)),
        disabled: false,
        sampling: None,
        tags: None,
        use_request_id: true,
        istio_tags: true,
        no_propagation: false,
    };
    let concerns = |given: WorkloadMode| given == WorkloadMode::ClientAndServer || given == mode(class);
    for given in specs.iter().flat_map(|t| &t.tracing) {
        if !given.r#match.as_ref().is_none_or(|selector| concerns(selector.mode())) {
            continue;
        }
        if let Some(name) = providers::names(&given.providers).next() {
            spec.name = Some(name);
            spec.provider = providers::find(mesh, name);
        }
        spec.disabled = given.disable_span_reporting.unwrap_or(spec.disabled);
        spec.tags = Some(&given.custom_tags).filter(|tags| !tags.is_empty()).or(spec.tags);
        spec.sampling = given.random_sampling_percentage.or(spec.sampling);
        spec.use_request_id = given.use_request_id_for_trace_sampling.unwrap_or(spec.use_request_id);
        spec.istio_tags = given.enable_istio_tags.unwrap_or(spec.istio_tags);
        spec.no_propagation = given.disable_context_propagation.unwrap_or(spec.no_propagation);
    }
    spec.disabled |= spec.provider.is_none();
    Some(spec)
}
