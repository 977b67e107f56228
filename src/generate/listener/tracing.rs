//! Tracing by mesh settings: sampling and tags. Which tracer gets the spans is said in the proxy's bootstrap. Tracing
//! providers of Telemetry objects come before this and are not generated yet.

use super::builder::Builder;
use crate::proto::{
    envoy::{
        extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing,
        r#type::{
            metadata::v3::{
                MetadataKey, MetadataKind,
                metadata_key::{PathSegment, path_segment::Segment},
                metadata_kind::{Kind, Request},
            },
            tracing::v3::{CustomTag, custom_tag},
            v3::Percent,
        },
    },
    mesh::{self, tracing::custom_tag::Type as GivenTag},
};

/// The tracing settings of a connection manager; `None` where the mesh does not trace.
#[must_use]
pub fn of_mesh(builder: &Builder) -> Option<Tracing> {
    if !builder.mesh().enable_tracing {
        return None;
    }
    let given = builder.proxy_config.tracing.as_ref();
    let percent = |value| Some(Percent { value });
    Some(Tracing {
        client_sampling: percent(100.0),
        overall_sampling: percent(100.0),
        random_sampling: percent(sampling(builder, given)),
        max_path_tag_length: given.map(|t| t.max_path_tag_length).filter(|n| *n != 0),
        custom_tags: tags(builder, given),
        ..Default::default()
    })
}

/// Percentage of requests: the proxy's own, else `PILOT_TRACE_SAMPLING`. A percentage above 100 counts as 1, as in Istio.
fn sampling(builder: &Builder, given: Option<&mesh::Tracing>) -> f64 {
    match given.map(|t| t.sampling).filter(|s| *s != 0.0) {
        Some(own) if own > 100.0 => 1.0,
        Some(own) => own,
        None => builder.features().trace_sampling,
    }
}

fn tags(builder: &Builder, given: Option<&mesh::Tracing>) -> Vec<CustomTag> {
    let mut tags = Vec::new();
    if given.and_then(|t| t.enable_istio_tags).unwrap_or(true) {
        tags.extend(service_tags(builder));
        tags.extend(dry_run_tags());
    }
    tags.extend(given.into_iter().flat_map(|t| &t.custom_tags).filter_map(|(name, tag)| {
        let kind = match tag.r#type.as_ref()? {
            GivenTag::Literal(l) => custom_tag::Type::Literal(custom_tag::Literal { value: l.value.clone() }),
            GivenTag::Environment(e) => custom_tag::Type::Environment(custom_tag::Environment {
                name: e.name.clone(),
                default_value: e.default_value.clone(),
            }),
            GivenTag::Header(h) => custom_tag::Type::RequestHeader(custom_tag::Header {
                name: h.name.clone(),
                default_value: h.default_value.clone(),
            }),
        };
        Some(CustomTag { tag: name.clone(), r#type: Some(kind) })
    }));
    tags.sort_by(|a, b| a.tag.cmp(&b.tag));
    tags
}

fn service_tags(builder: &Builder) -> impl Iterator<Item = CustomTag> {
    let view = builder.view;
    let label = |key: &str| view.labels.get(key).map_or("", String::as_str);
    // Istio reads these values from metadata; a stock Envoy often has them in its id only.
    let namespace = if builder.is_istio_proxy() { view.metadata.other("NAMESPACE") } else { &view.namespace };
    let or = |value: &str, default: &str| if value.is_empty() { default.to_string() } else { value.to_string() };
    [
        ("istio.canonical_revision", or(label("service.istio.io/canonical-revision"), "latest")),
        ("istio.canonical_service", or(label("service.istio.io/canonical-name"), "unknown")),
        ("istio.mesh_id", or(&view.metadata.mesh_id, "unknown")),
        ("istio.namespace", or(namespace, "default")),
        ("istio.cluster_id", or(&view.cluster_id, "unknown")),
    ]
    .into_iter()
    .map(|(tag, value)| CustomTag {
        tag: tag.to_string(),
        r#type: Some(custom_tag::Type::Literal(custom_tag::Literal { value })),
    })
}

/// The results of AuthorizationPolicies in dry-run mode. The tags have no value where there are none.
fn dry_run_tags() -> impl Iterator<Item = CustomTag> {
    ["allow", "deny"].into_iter().flat_map(|action| {
        [("name", "effective_policy_id"), ("result", "engine_result")].into_iter().map(move |(what, key)| {
            let segment = Segment::Key(format!("istio_dry_run_{action}_shadow_{key}"));
            let metadata = custom_tag::Metadata {
                kind: Some(MetadataKind { kind: Some(Kind::Request(Request {})) }),
                metadata_key: Some(MetadataKey {
                    key: "envoy.filters.http.rbac".to_string(),
                    path: vec![PathSegment { segment: Some(segment) }],
                }),
                ..Default::default()
            };
            CustomTag {
                tag: format!("istio.authorization.dry_run.{action}_policy.{what}"),
                r#type: Some(custom_tag::Type::Metadata(metadata)),
            }
        })
    })
}
