//! VirtualServices that other ones delegate routes to, and how the two are merged (Istio's `MergeHTTPRoutes`).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use prost::Message;

use super::{export_to, resolve};
use crate::{
    model::{Config, Spec, Visibility},
    proto::networking::{HttpMatchRequest, HttpRoute, StringMatch, string_match::MatchType},
};

struct Delegate {
    config: Arc<Config>,
    export_to: BTreeSet<Visibility>,
}

/// VirtualServices without hosts, names resolved, by namespace and name.
pub(super) struct Delegates(HashMap<(Arc<str>, Arc<str>), Delegate>);

impl Delegates {
    /// Picks the delegates out of all VirtualServices.
    pub(super) fn of(configs: &[Arc<Config>], default: &BTreeSet<Visibility>, domain: &str) -> Self {
        let mut delegates = HashMap::new();
        for config in configs {
            let Some(spec) = config.virtual_service().filter(|s| s.hosts.is_empty()) else { continue };
            let (name, namespace) = (config.meta.name.clone(), config.meta.namespace.clone());
            let export_to = export_to(&spec.export_to, &namespace, default);
            let config = resolve::short_names(config, domain);
            delegates.insert((namespace, name), Delegate { config, export_to });
        }
        Self(delegates)
    }

    /// The root with each delegating route replaced by the delegate's routes. A route whose delegate does not exist or is
    /// not exported to the root's namespace is left out.
    pub(super) fn merge_into(&self, root: &Arc<Config>) -> Arc<Config> {
        let Some(spec) = root.virtual_service() else { return root.clone() };
        let mut merged = spec.clone();
        merged.http = spec.http.iter().flat_map(|route| self.routes(route, &root.meta.namespace)).collect();
        let mut content = root.stamp.to_le_bytes().to_vec();
        content.extend(merged.encode_to_vec());
        let stamp = xxhash_rust::xxh3::xxh3_64(&content).max(1);
        Arc::new(Config { spec: Spec::VirtualService(Arc::new(merged)), stamp, ..Config::clone(root) })
    }

    fn routes(&self, route: &HttpRoute, root_namespace: &Arc<str>) -> Vec<HttpRoute> {
        let Some(reference) = &route.delegate else { return vec![route.clone()] };
        let namespace = if reference.namespace.is_empty() { &**root_namespace } else { reference.namespace.as_str() };
        let Some(delegate) = self.0.get(&(namespace.into(), reference.name.as_str().into())) else {
            tracing::warn!(namespace, name = reference.name, "delegate VirtualService not found");
            return Vec::new();
        };
        let visible = delegate.export_to.contains(&Visibility::Public)
            || delegate.export_to.contains(&Visibility::Namespace(root_namespace.clone()));
        if !visible {
            tracing::warn!(
                namespace,
                name = reference.name,
                "delegate VirtualService is not exported to {root_namespace}"
            );
            return Vec::new();
        }
        let routes = delegate.config.virtual_service().map_or(&[][..], |s| &s.http);
        routes.iter().filter_map(|delegated| merge_route(route, delegated)).collect()
    }
}

/// The delegate's route under the conditions of the root's; `None` when the conditions contradict each other.
#[allow(deprecated, reason = "`mirrorPercent` still counts where a user wrote it")]
fn merge_route(root: &HttpRoute, delegate: &HttpRoute) -> Option<HttpRoute> {
    let Some(r#match) = merge_matches(&root.r#match, &delegate.r#match) else {
        tracing::warn!(root = root.name, delegate = delegate.name, "conflicting match of delegate VirtualService");
        return None;
    };
    let either = delegate.clone();
    Some(HttpRoute {
        r#match,
        name: join_names(&root.name, &delegate.name),
        rewrite: either.rewrite.or_else(|| root.rewrite.clone()),
        direct_response: either.direct_response.or_else(|| root.direct_response.clone()),
        timeout: either.timeout.or(root.timeout),
        retries: either.retries.or_else(|| root.retries.clone()),
        fault: either.fault.or_else(|| root.fault.clone()),
        mirror: either.mirror.or_else(|| root.mirror.clone()),
        mirror_percent: either.mirror_percent.or(root.mirror_percent),
        mirror_percentage: either.mirror_percentage.or(root.mirror_percentage),
        cors_policy: either.cors_policy.or_else(|| root.cors_policy.clone()),
        mirrors: if either.mirrors.is_empty() { root.mirrors.clone() } else { either.mirrors },
        headers: either.headers.or_else(|| root.headers.clone()),
        route: either.route,
        redirect: either.redirect,
        delegate: either.delegate,
    })
}

fn join_names(root: &str, delegate: &str) -> String {
    match (root.is_empty(), delegate.is_empty()) {
        (_, true) => root.to_string(),
        (true, false) => delegate.to_string(),
        (false, false) => format!("{root}-{delegate}"),
    }
}

/// Every match of the delegate combined with every match of the root that it does not contradict; `None` when a match of
/// the delegate contradicts all of the root's.
fn merge_matches(root: &[HttpMatchRequest], delegate: &[HttpMatchRequest]) -> Option<Vec<HttpMatchRequest>> {
    if root.is_empty() {
        return Some(delegate.to_vec());
    }
    if delegate.is_empty() {
        return Some(root.to_vec());
    }
    let mut merged = Vec::new();
    for leaf in delegate {
        let before = merged.len();
        merged.extend(root.iter().filter(|root| !has_conflict(root, leaf)).map(|root| merge_match(root, leaf)));
        if merged.len() == before {
            return None;
        }
    }
    Some(merged)
}

fn merge_match(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> HttpMatchRequest {
    let text = |leaf: &String, root: &String| if leaf.is_empty() { root.clone() } else { leaf.clone() };
    HttpMatchRequest {
        name: join_names(&root.name, &leaf.name),
        uri: leaf.uri.clone().or_else(|| root.uri.clone()),
        scheme: leaf.scheme.clone().or_else(|| root.scheme.clone()),
        method: leaf.method.clone().or_else(|| root.method.clone()),
        authority: leaf.authority.clone().or_else(|| root.authority.clone()),
        headers: merge_maps(&root.headers, &leaf.headers),
        port: if leaf.port == 0 { root.port } else { leaf.port },
        source_labels: merge_maps(&root.source_labels, &leaf.source_labels),
        gateways: if leaf.gateways.is_empty() { root.gateways.clone() } else { leaf.gateways.clone() },
        query_params: merge_maps(&root.query_params, &leaf.query_params),
        ignore_uri_case: leaf.ignore_uri_case,
        without_headers: merge_maps(&root.without_headers, &leaf.without_headers),
        source_namespace: text(&leaf.source_namespace, &root.source_namespace),
        stat_prefix: text(&leaf.stat_prefix, &root.stat_prefix),
    }
}

fn merge_maps<V: Clone>(root: &BTreeMap<String, V>, leaf: &BTreeMap<String, V>) -> BTreeMap<String, V> {
    root.iter().chain(leaf).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Whether the leaf's match is no subset of the root's.
fn has_conflict(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> bool {
    let pairs = [
        (&root.uri, &leaf.uri),
        (&root.scheme, &leaf.scheme),
        (&root.method, &leaf.method),
        (&root.authority, &leaf.authority),
    ];
    let maps = [
        (&root.headers, &leaf.headers),
        (&root.without_headers, &leaf.without_headers),
        (&root.query_params, &leaf.query_params),
    ];
    let map_conflicts = |(root, leaf): (&BTreeMap<String, StringMatch>, &BTreeMap<String, StringMatch>)| {
        leaf.iter().any(|(key, value)| string_conflict(root.get(key), Some(value)))
    };
    pairs.iter().any(|(root, leaf)| string_conflict(root.as_ref(), leaf.as_ref()))
        || maps.into_iter().any(map_conflicts)
        || root.ignore_uri_case != leaf.ignore_uri_case
        || (root.port > 0 && leaf.port > 0 && root.port != leaf.port)
        || (!root.source_namespace.is_empty() && leaf.source_namespace != root.source_namespace)
        || leaf.source_labels.iter().any(|(key, value)| root.source_labels.get(key).is_some_and(|v| v != value))
        || gateways_conflict(&root.gateways, &leaf.gateways)
}

fn gateways_conflict(root: &[String], leaf: &[String]) -> bool {
    !root.is_empty()
        && !leaf.is_empty()
        && (root.len() < leaf.len() || leaf.iter().any(|gateway| !root.contains(gateway)))
}

/// Whether the leaf may match a text that the root does not. An absent match contradicts nothing; a regular expression
/// contradicts everything, since inclusion of one cannot be decided.
fn string_conflict(root: Option<&StringMatch>, leaf: Option<&StringMatch>) -> bool {
    let (Some(root), Some(leaf)) = (root, leaf) else { return false };
    match (set_match(root), set_match(leaf)) {
        (Some(MatchType::Exact(root)), Some(MatchType::Exact(leaf))) => root != leaf,
        (Some(MatchType::Prefix(root)), Some(MatchType::Prefix(leaf) | MatchType::Exact(leaf))) => {
            !leaf.starts_with(root.as_str())
        }
        _ => true,
    }
}

/// The match, unless its text is empty, which counts as not set.
fn set_match(value: &StringMatch) -> Option<&MatchType> {
    value.match_type.as_ref().filter(|m| match m {
        MatchType::Exact(text) | MatchType::Prefix(text) | MatchType::Regex(text) => !text.is_empty(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str) -> StringMatch {
        StringMatch { match_type: Some(MatchType::Exact(text.into())) }
    }

    fn prefix(text: &str) -> StringMatch {
        StringMatch { match_type: Some(MatchType::Prefix(text.into())) }
    }

    fn regex(text: &str) -> StringMatch {
        StringMatch { match_type: Some(MatchType::Regex(text.into())) }
    }

    #[test]
    fn a_leaf_that_is_no_subset_conflicts() {
        let cases = [
            (exact("/a"), exact("/a"), false),
            (exact("/a"), exact("/b"), true),
            (exact("/a"), prefix("/a"), true),
            (prefix("/a"), prefix("/a/b"), false),
            (prefix("/a/b"), prefix("/a"), true),
            (prefix("/a"), exact("/a/b"), false),
            (prefix("/a"), exact("/b"), true),
            (regex("a"), exact("a"), true),
            (prefix("/a"), regex("/a"), true),
            (exact(""), exact(""), true),
        ];
        for (root, leaf, conflict) in cases {
            assert_eq!(string_conflict(Some(&root), Some(&leaf)), conflict, "{root:?} {leaf:?}");
        }
        assert!(!string_conflict(None, Some(&exact("a"))) && !string_conflict(Some(&regex("a")), None));
    }

    #[test]
    fn matches_combine_and_a_contradiction_drops_the_route() {
        let uri = |m| HttpMatchRequest { uri: Some(m), ..HttpMatchRequest::default() };
        let port = HttpMatchRequest { port: 80, ..HttpMatchRequest::default() };
        let merged = merge_matches(&[uri(prefix("/a")), port.clone()], &[uri(prefix("/a/b"))]);
        let expected = vec![uri(prefix("/a/b")), HttpMatchRequest { port: 80, ..uri(prefix("/a/b")) }];
        assert_eq!(merged, Some(expected));
        assert_eq!(merge_matches(&[uri(prefix("/a"))], &[uri(prefix("/a/b")), uri(prefix("/c"))]), None);
        assert_eq!(merge_matches(&[], std::slice::from_ref(&port)), Some(vec![port]));
    }
}
