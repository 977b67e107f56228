//! Tracing: sampling, tags, and the provider that gets the spans; of Telemetries and default providers, else of the mesh
//! settings, with which the proxy's bootstrap says the tracer.

mod provider;
mod tags;

pub use provider::usable;

use super::{inputs::Inputs, telemetry::spans::SpanSpec};
use crate::proto::{
    envoy::{
        extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing,
        r#type::{tracing::v3::CustomTag, v3::Percent},
    },
    istio::telemetry::v1alpha1::Telemetry,
    mesh,
};

/// The first version of Istio's proxy that can keep the context of a trace to itself.
const KEEPS_CONTEXT: (u32, u32) = (1, 30);
/// The first version of Envoy that can.
const ENVOY_KEEPS_CONTEXT: (u32, u32) = (1, 38);

/// The tracing of the connection managers of one class.
#[derive(Debug, Clone, PartialEq)]
pub struct Spans {
    /// The settings; `None` where nothing is traced.
    pub tracing: Option<Tracing>,
    /// The request id says whether a request is traced.
    pub use_request_id: bool,
}

/// A provider without which nothing is traced, and the sentence that tells it.
pub type Untraced = (String, String);

impl Spans {
    /// Tracing as Telemetries and default providers have it; without these, as the mesh settings do.
    #[must_use]
    pub fn of(inputs: &Inputs, spec: Option<&SpanSpec>) -> (Self, Option<Untraced>) {
        let Some(spec) = spec else { return (Self { tracing: of_mesh(inputs), use_request_id: true }, None) };
        let none = Self { tracing: None, use_request_id: true };
        let provider = match (spec.provider, spec.name) {
            (Some(provider), _) if !spec.disabled => provider,
            (None, Some(name)) => {
                let reason = format!("nothing is traced: provider {name:?}: the mesh settings have none of this name");
                return (none, Some((name.to_string(), reason)));
            }
            _ => return (none, None),
        };
        match provider::tracing(inputs, provider) {
            Ok((tracing, samples)) => {
                let tracing = Some(complete(inputs, spec, tracing, samples));
                (Self { tracing, use_request_id: spec.use_request_id }, None)
            }
            Err(reason) => {
                let reason = format!("nothing is traced: provider {:?}: {reason}", provider.name);
                (none, Some((provider.name.clone(), reason)))
            }
        }
    }
}

/// The reasons tags of a Telemetry are left out.
#[must_use]
pub fn refused_tags(telemetry: &Telemetry) -> Vec<String> {
    telemetry.tracing.iter().flat_map(|tracing| tags::taken(&tracing.custom_tags).1).collect()
}

/// Sampling and tags beside the provider. A provider that samples itself gets all spans.
fn complete(inputs: &Inputs, spec: &SpanSpec, mut tracing: Tracing, samples: bool) -> Tracing {
    let given = inputs.proxy_config.tracing.as_ref();
    let share = match spec.sampling {
        _ if samples => 100.0,
        Some(share) => share,
        None => sampling(inputs, given),
    };
    sample(&mut tracing, share);
    let mut tags: Vec<CustomTag> = Vec::new();
    if spec.istio_tags {
        tags.extend(tags::istio(inputs));
    }
    match spec.tags {
        Some(own) => tags.extend(tags::of_telemetry(inputs, own)),
        None => tags.extend(tags::of_proxy(given)),
    }
    tracing.custom_tags = sorted(tags);
    tracing.max_path_tag_length = tracing.max_path_tag_length.or_else(|| most_path(given));
    tracing.no_context_propagation = spec.no_propagation && inputs.is_at_least(KEEPS_CONTEXT, ENVOY_KEEPS_CONTEXT);
    tracing
}

/// The tracing of mesh settings; `None` where the mesh does not trace.
fn of_mesh(inputs: &Inputs) -> Option<Tracing> {
    if !inputs.mesh().enable_tracing {
        return None;
    }
    let given = inputs.proxy_config.tracing.as_ref();
    let mut tags: Vec<CustomTag> = Vec::new();
    if given.and_then(|t| t.enable_istio_tags).unwrap_or(true) {
        tags.extend(tags::istio(inputs));
    }
    tags.extend(tags::of_proxy(given));
    let mut tracing =
        Tracing { max_path_tag_length: most_path(given), custom_tags: sorted(tags), ..Tracing::default() };
    sample(&mut tracing, sampling(inputs, given));
    Some(tracing)
}

fn sample(tracing: &mut Tracing, share: f64) {
    let percent = |value| Some(Percent { value });
    tracing.client_sampling = percent(100.0);
    tracing.overall_sampling = percent(100.0);
    tracing.random_sampling = percent(share);
}

fn most_path(given: Option<&mesh::Tracing>) -> Option<u32> {
    given.map(|t| t.max_path_tag_length).filter(|n| *n != 0)
}

fn sorted(mut tags: Vec<CustomTag>) -> Vec<CustomTag> {
    tags.sort_by(|a, b| a.tag.cmp(&b.tag));
    tags
}

/// Percentage of requests: the proxy's own, else `PILOT_TRACE_SAMPLING`. A percentage above 100 counts as 1, as in Istio.
fn sampling(inputs: &Inputs, given: Option<&mesh::Tracing>) -> f64 {
    match given.map(|t| t.sampling).filter(|s| *s != 0.0) {
        Some(own) if own > 100.0 => 1.0,
        Some(own) => own,
        None => inputs.features().trace_sampling,
    }
}
