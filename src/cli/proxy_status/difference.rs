//! The difference between the configuration that a proxy was sent and the one that it holds, resource by resource.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use similar::TextDiff;

use crate::cli::dump::{Dump, Part};

/// Lines around each difference; istioctl's number.
const CONTEXT: usize = 7;

/// The types that are compared, as istioctl does: what Envoy shows of the others is not what it was sent.
const COMPARED: [(Part, &str); 3] =
    [(Part::Clusters, "Clusters"), (Part::Listeners, "Listeners"), (Part::Routes, "Routes")];

/// The result for one type.
#[derive(Debug, Clone)]
pub(super) struct Compared {
    /// `Clusters`, `Listeners` or `Routes`.
    title: &'static str,
    /// Unified diffs of resources, by name; empty when all match.
    diffs: BTreeMap<String, String>,
}

/// Compares by name. The order of resources and fields is of no meaning, nor are versions and times.
pub(super) fn between(sent: &Dump, held: &Dump) -> Vec<Compared> {
    let of = |(part, title): (Part, &'static str)| {
        let (sent, held) = (by_name(sent.dynamic(part)), by_name(held.dynamic(part)));
        let names = sent.keys().chain(held.keys().filter(|name| !sent.contains_key(*name)));
        let diffs = names.filter_map(|name| {
            let (sent, held) = (sent.get(name), held.get(name));
            (sent != held).then(|| (name.clone(), unified(title, name, sent, held)))
        });
        Compared { title, diffs: diffs.collect() }
    };
    COMPARED.into_iter().map(of).collect()
}

fn by_name(resources: Vec<Value>) -> BTreeMap<String, Value> {
    let named = |mut resource: Value| {
        resource.sort_all_objects();
        (resource["name"].as_str().unwrap_or_default().to_string(), resource)
    };
    resources.into_iter().map(named).collect()
}

fn unified(title: &str, name: &str, sent: Option<&Value>, held: Option<&Value>) -> String {
    let text = |value: Option<&Value>| {
        value.map(|v| serde_json::to_string_pretty(v).unwrap_or_default() + "\n").unwrap_or_default()
    };
    let (sent, held) = (text(sent), text(held));
    let (from, to) = (format!("Sent {title} {name}"), format!("Envoy {title} {name}"));
    TextDiff::from_lines(&sent, &held).unified_diff().context_radius(CONTEXT).header(&from, &to).to_string()
}

/// istioctl's words, each followed by its differences.
pub(super) fn text(compared: &[Compared]) -> String {
    let of = |Compared { title, diffs }: &Compared| match diffs.is_empty() {
        true => format!("{title} Match\n"),
        false => format!("{title} Don't Match\n{}\n", diffs.values().map(String::as_str).collect::<String>()),
    };
    compared.iter().map(of).collect()
}

/// The same as a document: for each type whether it matches, and the diffs by name.
pub(super) fn value(compared: &[Compared]) -> Value {
    let of = |Compared { title, diffs }: &Compared| {
        (title.to_lowercase(), json!({"match": diffs.is_empty(), "differences": diffs}))
    };
    Value::Object(compared.iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::dump::Document;

    fn dump(key: [&str; 2], clusters: Value) -> Dump {
        let clusters: Vec<Value> =
            clusters.as_array().unwrap().iter().map(|c| json!({"cluster": c, key[0]: "x"})).collect();
        let section = json!({"@type": "x/envoy.admin.v3.ClustersConfigDump", key[1]: clusters});
        Dump::of(Document { place: String::new(), value: json!({"configs": [section]}) }).unwrap()
    }

    #[test]
    fn a_difference_is_shown_by_name_and_order_is_none() {
        let url = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        let sent = dump(
            ["versionInfo", "dynamicActiveClusters"],
            json!([{"@type": url, "name": "a", "connectTimeout": "1s"}, {"@type": url, "name": "b"}, {"@type": url, "name": "c"}]),
        );
        let same = dump(
            ["last_updated", "dynamic_active_clusters"],
            json!([{"name": "c", "@type": url}, {"@type": url, "name": "b"}, {"connect_timeout": "1s", "@type": url, "name": "a"}]),
        );
        assert_eq!(text(&between(&sent, &same)), "Clusters Match\nListeners Match\nRoutes Match\n");
        let other = dump(
            ["last_updated", "dynamic_active_clusters"],
            json!([{"@type": url, "name": "a", "connect_timeout": "2s"}, {"@type": url, "name": "b"}, {"@type": url, "name": "d"}]),
        );
        let found = between(&sent, &other);
        let shown = text(&found);
        assert!(shown.starts_with("Clusters Don't Match\n--- Sent Clusters a\n+++ Envoy Clusters a\n"), "{shown}");
        assert!(shown.contains("-  \"connectTimeout\": \"1s\",\n+  \"connectTimeout\": \"2s\","), "{shown}");
        assert!(
            !shown.contains("Clusters b") && shown.contains("Clusters c") && shown.contains("Clusters d"),
            "{shown}"
        );
        assert_eq!(value(&found)["clusters"]["match"], false);
        assert_eq!(value(&found)["routes"], json!({"match": true, "differences": {}}));
    }
}
