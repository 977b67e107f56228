//! Tags of spans: Istio's own, those of a proxy's settings, those of Telemetries.
//!
//! Invariant: a tag of a Telemetry that Envoy would refuse is left out alone, and tags without end are cut at a bound.

use std::collections::BTreeMap;

use crate::{
    generate::{check, listener::inputs::Inputs},
    proto::{
        envoy::r#type::{
            metadata::v3::{
                MetadataKey, MetadataKind,
                metadata_key::{PathSegment, path_segment::Segment},
                metadata_kind::{Kind, Request},
            },
            tracing::v3::{CustomTag, custom_tag},
        },
        istio::telemetry::v1alpha1::tracing::{CustomTag as GivenTag, custom_tag::Type as Given},
        mesh::{self, tracing::custom_tag::Type as OwnTag},
    },
};

/// Tags of one Telemetry. Each connection manager of a proxy holds them.
const MOST_TAGS: usize = 256;
/// Bytes of the names and values of these tags.
const MOST_BYTES: usize = 32 * 1024;
/// The version of Istio's proxy that can format tags.
const FORMATS: (u32, u32) = (1, 29);
/// The version of Envoy that can.
const ENVOY_FORMATS: (u32, u32) = (1, 37);

/// Istio's own tags.
pub(super) fn istio(inputs: &Inputs) -> impl Iterator<Item = CustomTag> {
    service_tags(inputs).chain(dry_run_tags())
}

/// The tags of a proxy's settings.
pub(super) fn of_proxy(given: Option<&mesh::Tracing>) -> impl Iterator<Item = CustomTag> {
    given.into_iter().flat_map(|t| &t.custom_tags).filter_map(|(name, tag)| {
        let kind = match tag.r#type.as_ref()? {
            OwnTag::Literal(l) => literal(&l.value),
            OwnTag::Environment(e) => environment(&e.name, &e.default_value),
            OwnTag::Header(h) => header(&h.name, &h.default_value),
        };
        Some(CustomTag { tag: name.clone(), r#type: Some(kind) })
    })
}

/// The tags of a Telemetry that the proxy can take.
pub(super) fn of_telemetry(inputs: &Inputs, given: &BTreeMap<String, GivenTag>) -> Vec<CustomTag> {
    let formats = inputs.is_at_least(FORMATS, ENVOY_FORMATS);
    let can = |tag: &CustomTag| formats || !matches!(tag.r#type, Some(custom_tag::Type::Value(_)));
    taken(given).0.into_iter().filter(can).collect()
}

/// The tags that Envoy takes, and the reasons it would refuse the others.
pub(super) fn taken(given: &BTreeMap<String, GivenTag>) -> (Vec<CustomTag>, Vec<String>) {
    let (mut tags, mut refused, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (name, tag) in given {
        let tag = tag_of(name, tag);
        bytes += prost::Message::encoded_len(&tag);
        if tags.len() == MOST_TAGS || bytes > MOST_BYTES {
            refused.push(format!("customTags: those from {name:?} on are left out, which are too many"));
            break;
        }
        match checked(&tag) {
            Ok(()) => tags.push(tag),
            Err(reason) => refused.push(format!("customTags: {name:?} is left out: {reason}")),
        }
    }
    (tags, refused)
}

fn checked(tag: &CustomTag) -> Result<(), String> {
    check::encoded(tag).map_err(|found| check::reasons(&found))?;
    match &tag.r#type {
        Some(custom_tag::Type::Value(format)) => check::format(format),
        _ => Ok(()),
    }
}

fn tag_of(name: &str, given: &GivenTag) -> CustomTag {
    let kind = given.r#type.as_ref().map(|given| match given {
        Given::Literal(l) => literal(&l.value),
        Given::Environment(e) => environment(&e.name, &e.default_value),
        Given::Header(h) => header(&h.name, &h.default_value),
        Given::Formatter(f) => custom_tag::Type::Value(f.value.clone()),
    });
    CustomTag { tag: name.to_string(), r#type: kind }
}

fn literal(value: &str) -> custom_tag::Type {
    custom_tag::Type::Literal(custom_tag::Literal { value: value.to_string() })
}

fn environment(name: &str, default: &str) -> custom_tag::Type {
    let (name, default_value) = (name.to_string(), default.to_string());
    custom_tag::Type::Environment(custom_tag::Environment { name, default_value })
}

fn header(name: &str, default: &str) -> custom_tag::Type {
    let (name, default_value) = (name.to_string(), default.to_string());
    custom_tag::Type::RequestHeader(custom_tag::Header { name, default_value })
}

fn service_tags(inputs: &Inputs) -> impl Iterator<Item = CustomTag> {
    let view = inputs.view;
    let label = |key: &str| view.labels.get(key).map_or("", String::as_str);
    // Istio reads these values from metadata; a stock Envoy often has them in its id only.
    let namespace = if inputs.is_istio_proxy() { view.metadata.other("NAMESPACE") } else { &view.namespace };
    let or = |value: &str, default: &str| if value.is_empty() { default.to_string() } else { value.to_string() };
    [
        ("istio.canonical_revision", or(label("service.istio.io/canonical-revision"), "latest")),
        ("istio.canonical_service", or(label("service.istio.io/canonical-name"), "unknown")),
        ("istio.mesh_id", or(&view.metadata.mesh_id, "unknown")),
        ("istio.namespace", or(namespace, "default")),
        ("istio.cluster_id", or(&view.cluster_id, "unknown")),
    ]
    .into_iter()
    .map(|(tag, value)| CustomTag { tag: tag.to_string(), r#type: Some(literal(&value)) })
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
