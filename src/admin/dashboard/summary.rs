//! A resource in one line, and the objects that its metadata names.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{model::Kind, xds::ResourceType};

/// The length of an array.
fn count(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

fn address(value: &Value) -> String {
    let socket = &value["socketAddress"];
    match (socket["address"].as_str(), socket["portValue"].as_u64()) {
        (Some(address), port) => format!("{address}:{}", port.unwrap_or_default()),
        _ => value["pipe"]["path"].as_str().unwrap_or_default().to_string(),
    }
}

/// A resource in one line.
pub(super) fn line(kind: ResourceType, content: &Value) -> String {
    let plural = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    match kind {
        ResourceType::Cluster => {
            let sort = content["type"].as_str().or(content["clusterType"]["name"].as_str()).unwrap_or("STATIC");
            let policy = content["lbPolicy"].as_str().unwrap_or("ROUND_ROBIN");
            let tls = content["transportSocket"].is_object() || count(&content["transportSocketMatches"]) > 0;
            format!("{sort}, {policy}{}", if tls { ", TLS" } else { "" })
        }
        ResourceType::Listener => {
            let chains = count(&content["filterChains"]) + usize::from(content["defaultFilterChain"].is_object());
            let at = if content["apiListener"].is_object() {
                "API listener".to_string()
            } else {
                address(&content["address"])
            };
            format!("{at}, {}", plural(chains, "filter chain"))
        }
        ResourceType::Route => {
            let hosts = content["virtualHosts"].as_array().map_or(&[][..], Vec::as_slice);
            let routes = hosts.iter().map(|host| count(&host["routes"])).sum();
            format!("{}, {}", plural(hosts.len(), "virtual host"), plural(routes, "route"))
        }
        ResourceType::Endpoint => {
            let localities = content["endpoints"].as_array().map_or(&[][..], Vec::as_slice);
            let endpoints = localities.iter().map(|locality| count(&locality["lbEndpoints"])).sum();
            format!("{} in {}", plural(endpoints, "endpoint"), plural(localities.len(), "group"))
        }
        ResourceType::Secret => {
            let sorts =
                [("tlsCertificate", "certificate"), ("validationContext", "trust bundle"), ("genericSecret", "secret")];
            let sort = sorts.into_iter().find(|(field, _)| content[field].is_object());
            sort.map_or("secret", |(_, word)| word).to_string()
        }
        _ => String::new(),
    }
}

/// Objects that are named in a resource.
const MOST: usize = 20;

/// The objects that the metadata in an encoded resource names by their paths in the API, with the number of all.
pub(super) fn objects(encoded: &[u8]) -> Value {
    const MARK: &[u8] = b"/apis/";
    let mut found: BTreeSet<(Kind, &str, &str)> = BTreeSet::new();
    let mut rest = encoded;
    while let Some(at) = rest.windows(MARK.len()).position(|window| window == MARK) {
        let path = &rest[at..];
        let end =
            path.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b"/-.".contains(byte))).unwrap_or(path.len());
        found.extend(std::str::from_utf8(&path[..end]).ok().and_then(of_path));
        rest = &path[MARK.len().min(path.len())..];
    }
    let shown = found.iter().take(MOST).map(|(kind, namespace, name)| {
        json!({"kind": kind.as_str(), "group": kind.group(), "namespace": namespace, "name": name})
    });
    json!({"total": found.len(), "rows": shown.collect::<Vec<_>>()})
}

/// The object of `/apis/GROUP/VERSION/namespaces/NAMESPACE/KIND-IN-KEBAB/NAME`.
fn of_path(path: &str) -> Option<(Kind, &str, &str)> {
    let parts: Vec<&str> = path.split('/').collect();
    let ["", "apis", group, _, "namespaces", namespace, kebab, name] = parts[..] else { return None };
    let plain = kebab.replace('-', "");
    let kind = Kind::ALL.iter().find(|kind| kind.group() == group && kind.as_str().eq_ignore_ascii_case(&plain))?;
    Some((*kind, namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_in_a_line() {
        let of = |kind, content: Value| line(kind, &content);
        assert_eq!(
            of(ResourceType::Cluster, json!({"type": "EDS", "transportSocketMatches": [{}]})),
            "EDS, ROUND_ROBIN, TLS"
        );
        let listener =
            json!({"address": {"socketAddress": {"address": "0.0.0.0", "portValue": 80}}, "filterChains": [{}]});
        assert_eq!(of(ResourceType::Listener, listener), "0.0.0.0:80, 1 filter chain");
        let route = json!({"virtualHosts": [{"routes": [{}, {}]}, {}]});
        assert_eq!(of(ResourceType::Route, route), "2 virtual hosts, 2 routes");
        let endpoints = json!({"endpoints": [{"lbEndpoints": [{}]}]});
        assert_eq!(of(ResourceType::Endpoint, endpoints), "1 endpoint in 1 group");
    }

    #[test]
    fn objects_by_the_paths_in_metadata() {
        let encoded = b"x\x1a/apis/networking.istio.io/v1/namespaces/shop/destination-rule/web\x12\x05/apis/x \
                        /apis/networking.istio.io/v1alpha3/namespaces/shop/virtual-service/web\x00";
        let found = objects(encoded);
        let kinds: Vec<&str> = found["rows"].as_array().unwrap().iter().filter_map(|o| o["kind"].as_str()).collect();
        assert_eq!(kinds, ["DestinationRule", "VirtualService"]);
        assert_eq!(objects(b"/apis/")["total"], 0);
    }
}
