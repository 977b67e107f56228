//! Names: of resources that clients ask for, of hosts, of everything that is one word.

use std::collections::BTreeSet;

use pilothouse::{
    discovery::Composer,
    generate::{endpoint::load_assignment, names, secret},
    model::{
        Credential, Identity, Labels, Locality, Protocol, Visibility, credential, grpc_status, host,
        validation::readers,
    },
    push::PushContext,
    translate,
};
use serde_json::{Value, json};

use super::world;

/// Names of clusters, routes, secrets and listeners that clients ask for, a line each.
pub fn resource_names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let asked: BTreeSet<String> = text.lines().take(8).map(String::from).collect();
    let asked: Vec<String> = asked.into_iter().collect();
    let world = world::fixed();
    let context: &PushContext = &world.context;
    for (node, identity) in &world.nodes {
        let view = context.view_of(node);
        if view.metadata.generator.as_ref() == "grpc" {
            let made = world.all(node, identity.as_ref(), &asked);
            assert!(asked.is_empty() || made.listeners.len() <= asked.len(), "listeners without a request");
            continue;
        }
        for name in &asked {
            assert_eq!(load_assignment(context, &view, name).cluster_name, *name);
            let composer = Composer::new(context, view.clone(), identity.as_ref());
            let route = composer.route_configuration(name).unwrap();
            assert!(route.is_none_or(|r| r.name == *name));
        }
        let secrets = secret::secrets(context, &view, &asked, identity.as_ref());
        assert!(secrets.resources.len() + secrets.refused.len() <= asked.len());
        if identity.is_none() {
            assert!(secrets.resources.is_empty(), "secrets for a client that proved nothing");
        }
    }
}

/// Two host names: the laws of matching.
pub fn hosts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (a, b) = text.split_once('\n').unwrap_or((&text, "*.test"));
    assert_eq!(host::matches(a, b), host::matches(b, a), "{a:?} {b:?}");
    assert!(host::matches(a, a) && host::subset_of(a, a), "{a:?}");
    if host::subset_of(a, b) {
        assert!(host::matches(a, b), "{a:?} is within {b:?} and does not match it");
    }
    if host::subset_of(a, b) && host::subset_of(b, a) {
        assert_eq!(a, b, "each is within the other");
    }
    assert_eq!(host::specificity(a, b), host::specificity(b, a).reverse(), "{a:?} {b:?}");
    let _ = (host::is_wildcard(a), host::resolve_short_name(a, b, "cluster.local"));
    for (rule, check) in readers::NAMES {
        if let Err(reason) = check(a) {
            // The name may be quoted twice, and a character of it be written as six.
            assert!(reason.len() <= 12 * a.len() + 512, "{rule}: a reason of {} bytes", reason.len());
        }
    }
}

/// A selector as JSON on the first line, labels on the second: the answer is that of Kubernetes' rules, spelt out.
pub fn label_selectors(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (selector, labels) = text.split_once('\n').unwrap_or((&text, "{}"));
    let (Ok(selector), Ok(labels)) = (serde_json::from_str::<Value>(selector), serde_json::from_str::<Labels>(labels))
    else {
        return;
    };
    let Some(selects) = translate::readers::selects(&selector, &labels) else { return };
    if !selector.is_object() {
        return;
    }
    let plain = selector["matchLabels"].as_object().into_iter().flatten();
    let by_label = plain.into_iter().all(|(k, v)| labels.get(k).map(String::as_str) == v.as_str());
    let by_expression = selector["matchExpressions"].as_array().into_iter().flatten().all(|e| {
        let value = labels.get(e["key"].as_str().unwrap_or_default());
        let values: Vec<&str> = e["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match (e["operator"].as_str(), value) {
            (Some("In"), Some(value)) => values.contains(&value.as_str()),
            (Some("NotIn"), value) => !values.is_empty() && value.is_none_or(|v| !values.contains(&v.as_str())),
            (Some("Exists"), value) => values.is_empty() && value.is_some(),
            (Some("DoesNotExist"), value) => values.is_empty() && value.is_none(),
            _ => false,
        }
    });
    assert_eq!(selects, by_label && by_expression, "{selector} {labels:?}");
}

/// Everything that is read from one word.
pub fn plain_names(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    if let Some((direction, subset, host, port)) = names::parse_subset_key(text) {
        assert!(direction.len() + subset.len() + host.len() <= text.len(), "port {port}");
    }
    if let Some(identity) = Identity::parse(text) {
        assert_eq!(Identity::parse(&identity.to_string()), Some(identity), "{text:?}");
    }
    if let Some(credential) = Credential::parse(text, "shop") {
        assert!(credential.name.len() <= text.len(), "{text:?}");
    }
    let _ = (credential::resource_name(text), credential::is_gateway_secret(text), grpc_status::code(text));
    let locality = Locality::parse(text);
    assert!(locality.region.len() + locality.zone.len() + locality.subzone.len() <= text.len());
    let _ = (Protocol::parse(text), Visibility::parse(text));
    if let Some(range) = names::cidr_range(text) {
        let longest = if range.address_prefix.contains(':') { 128 } else { 32 };
        assert!(range.prefix_len.unwrap_or_default() <= longest, "{text:?}: {range:?}");
    }
    let _ = json!({ "word": text });
}
