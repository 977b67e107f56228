//! Statistics of Envoy as the mesh has them: which are kept, their tags, their intervals (Istio's `getStatsOptions`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::mesh::annotation;
use crate::{
    model::Node,
    proto::{go_duration, mesh::ProxyConfig},
};

/// Tags and the expressions that take them out of the names of statistics, as Istio's dashboards expect them.
const TAGS: &[(&str, &str)] = &[
    ("cluster_name", r"^cluster(\.(.+);)"),
    ("http_conn_manager_prefix", r"^http\.(((?:[_.[:digit:]\w]*|[_\[\]aAbBcCdDeEfF[:digit:]\w\:]*));\.)"),
    ("thread_name", r"^server(\.(.+))\.watchdog"),
    ("tcp_prefix", r"^tcp\.((.*?)\.)\w+?$"),
    ("response_code", r"_rq(_(\d{3}))$"),
    ("response_code_class", r"_rq(_(\dxx))$"),
    (
        "http_conn_manager_listener_prefix",
        r"^listener(?=\.).*?\.http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)",
    ),
    ("listener_address", r"^listener\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)"),
    ("mongo_prefix", r"^mongo\.(.+?)\.(collection|cmd|cx_|op_|delays_|decoding_)(.*?)$"),
];
/// As [`TAGS`]; they come after the extra ones.
const LATER_TAGS: &[(&str, &str)] = &[
    ("cache", r"(cache\.(.+?)\.)"),
    ("component", r"(component\.(.+?)\.)"),
    ("tag", r"(tag\.(.+?);\.)"),
    ("wasm_filter", r"(wasm_filter\.(.+?)\.)"),
    ("authz_enforce_result", r"rbac(\.(allowed|denied))"),
    ("authz_dry_run_action", r"(\.istio_dry_run_(allow|deny)_)"),
    ("authz_dry_run_result", r"(\.shadow_(allowed|denied))"),
];
/// Prefixes of statistics that are kept whatever the settings say: standard metrics, and those of readiness.
const PREFIXES: &[&str] = &["reporter=", "component", "istio"];
const REQUIRED_PREFIXES: &[&str] = &["cluster_manager", "listener_manager", "server", "cluster.xds-grpc", "wasm"];
const REQUIRED_SUFFIXES: &[&str] = &["rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied"];
/// A drain ends when the last connection has.
const DRAIN_SUFFIX: &str = "downstream_cx_active";
/// Statistics by the `statPrefix` of a VirtualService.
const REQUIRED_EXPRESSIONS: &[&str] = &[r"vhost\..*\.route\..*"];

/// Adds them. The second value lists annotations that cannot be read and are left out, as Istio leaves them out.
pub(super) fn add(bootstrap: &mut Value, settings: &ProxyConfig, node: &Node) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    let tag = |(name, regex): &(&str, &str)| json!({"tag_name": name, "regex": regex});
    let extra = extra_tags(settings, node);
    let extra =
        extra.iter().map(|name| json!({"tag_name": name, "regex": format!(r"({}=\.=(.*?);\.;)", literal(name))}));
    let tags: Vec<Value> = TAGS.iter().map(tag).chain(extra).chain(LATER_TAGS.iter().map(tag)).collect();
    let mut config = json!({
        "use_all_default_tags": false,
        "stats_tags": tags,
        "stats_matcher": {"inclusion_list": {"patterns": patterns(settings, node)?}},
    });
    if let Some(text) = annotation(node, "sidecar.istio.io/statsHistogramBuckets") {
        match serde_json::from_str::<BTreeMap<String, Vec<f64>>>(text) {
            Ok(buckets) => {
                let setting = |(prefix, buckets)| json!({"match": {"prefix": prefix}, "buckets": buckets});
                config["histogram_bucket_settings"] = buckets.into_iter().map(setting).collect();
            }
            Err(error) => notes.push(format!("annotation sidecar.istio.io/statsHistogramBuckets is left out: {error}")),
        }
    }
    bootstrap["stats_config"] = config;
    let mut interval = |name: &str, fits: &dyn Fn(std::time::Duration) -> bool| {
        let text = annotation(node, name)?;
        let duration = go_duration(text).filter(|duration| fits(*duration));
        if duration.is_none() {
            notes.push(format!("annotation {name} is left out: {text:?}"));
        }
        duration
    };
    let flush = interval("sidecar.istio.io/statsFlushInterval", &|d| !d.is_zero());
    let flushed = flush.unwrap_or(std::time::Duration::from_secs(5));
    let evict =
        interval("sidecar.istio.io/statsEvictionInterval", &|d| !d.is_zero() && d.as_nanos() % flushed.as_nanos() == 0);
    for (key, duration) in [("stats_flush_interval", flush), ("stats_eviction_interval", evict)] {
        if let Some(duration) = duration {
            bootstrap[key] = format!("{}s", duration.as_secs_f64()).into();
        }
    }
    Ok(notes)
}

fn extra_tags(settings: &ProxyConfig, node: &Node) -> Vec<String> {
    let own = annotation(node, "sidecar.istio.io/extraStatTags").unwrap_or_default();
    let all = settings.extra_stat_tags.iter().map(String::as_str).chain(own.split(','));
    let mut tags: Vec<String> = Vec::new();
    for tag in all.filter(|tag| !tag.is_empty()) {
        if !tags.iter().any(|known| known == tag) {
            tags.push(tag.to_string());
        }
    }
    tags
}

/// The text as an expression that fits it alone.
fn literal(text: &str) -> String {
    let escaped = |c: char| if r"\^$.|?*+()[]{}".contains(c) { format!(r"\{c}") } else { c.to_string() };
    text.chars().map(escaped).collect()
}

/// The statistics that are kept: those of the annotation, else those of the settings, and the required ones.
fn patterns(settings: &ProxyConfig, node: &Node) -> Result<Vec<Value>, String> {
    let matcher = settings.proxy_stats_matcher.clone().unwrap_or_default();
    let of = |name: &str, given: Vec<String>, required: &[&str]| -> Vec<String> {
        let written = annotation(node, &format!("sidecar.istio.io/{name}")).filter(|text| !text.is_empty());
        let wanted = written.map_or(given, |text| text.split(',').map(str::to_string).collect());
        let wanted = wanted.into_iter().chain(required.iter().map(ToString::to_string));
        wanted.flat_map(|pattern| with_addresses(&pattern, node)).collect()
    };
    let drains = node.raw_metadata.get("EXIT_ON_ZERO_ACTIVE_CONNECTIONS").is_some_and(|v| *v == true || *v == "true");
    let suffixes: Vec<&str> = REQUIRED_SUFFIXES.iter().copied().chain(drains.then_some(DRAIN_SUFFIX)).collect();
    let expressions = of("statsInclusionRegexps", matcher.inclusion_regexps, REQUIRED_EXPRESSIONS);
    if let Some(wrong) = expressions.iter().find(|text| regex::Regex::new(text).is_err()) {
        return Err(format!(
            "{wrong:?} is no regular expression, and Envoy would not start with it (statsInclusionRegexps)"
        ));
    }
    let prefixes = of("statsInclusionPrefixes", matcher.inclusion_prefixes, REQUIRED_PREFIXES);
    let always = PREFIXES.iter().map(|prefix| json!({"prefix": prefix}));
    let prefixes = prefixes.into_iter().map(|prefix| json!({"prefix": prefix}));
    let suffixes = of("statsInclusionSuffixes", matcher.inclusion_suffixes, &suffixes);
    let suffixes = suffixes.into_iter().map(|suffix| json!({"suffix": suffix}));
    let expressions = expressions.into_iter().map(|regex| json!({"safe_regex": {"regex": regex}}));
    // Envoy takes no empty text here.
    let is_full = |pattern: &Value| pattern.as_object().is_some_and(|p| p.values().all(|v| *v != ""));
    Ok(always.chain(prefixes).chain(suffixes).chain(expressions).filter(is_full).collect())
}

/// The pattern for each address of the proxy, where it names them.
fn with_addresses(pattern: &str, node: &Node) -> Vec<String> {
    const PLACE: &str = "{pod_ip}";
    if !pattern.contains(PLACE) {
        return vec![pattern.to_string()];
    }
    node.ips.iter().map(|ip| pattern.replace(PLACE, ip)).collect()
}
