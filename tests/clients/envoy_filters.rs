//! EnvoyFilters as Istio's documentation has them, applied to a running Envoy: Lua, local rate limits, headers, clusters, extension
//! configurations, and patches that do not fit.

use serde_json::{Value, json};

use crate::{
    config::{document, gateway, object, service, subsets, to},
    http::{Answer, Echo, get},
    mesh::{ControlPlane, Envoy},
    process::{free_port, wait_for},
};

const HOST: &str = "web.example";
const NODE: &str = "router~127.0.0.1~edge.shop~shop.svc.cluster.local";
const MANAGER: &str = "envoy.filters.network.http_connection_manager";

fn filter(name: &str, patches: &Value) -> String {
    let spec = json!({"workloadSelector": {"labels": {"app": "edge"}}, "configPatches": patches});
    document("networking.istio.io/v1alpha3", "EnvoyFilter", name, &spec)
}

/// Before the router of a gateway's connection managers.
fn before_router(value: &Value) -> Value {
    json!({
        "applyTo": "HTTP_FILTER",
        "match": {"context": "GATEWAY", "listener": {"filterChain": {"filter": {"name": MANAGER, "subFilter": {"name": "envoy.filters.http.router"}}}}},
        "patch": {"operation": "INSERT_BEFORE", "value": value},
    })
}

fn patch(target: &str, operation: &str, condition: &Value, value: &Value) -> Value {
    json!({"applyTo": target, "match": condition, "patch": {"operation": operation, "value": value}})
}

fn lua(name: &str, code: &str) -> Value {
    json!({"name": name, "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
        "default_source_code": {"inline_string": code},
    }})
}

/// Two versions of a host behind a gateway; requests go to `v1`.
struct Edge {
    port: u16,
    v2: Echo,
    _v1: Echo,
    plane: ControlPlane,
    envoy: Envoy,
}

impl Edge {
    fn open(delta: bool) -> Self {
        let (v1, v2, port) = (Echo::start("v1"), Echo::start("v2"), free_port());
        let text = service(HOST, 80, "HTTP", &[(v1.port, "v1", ""), (v2.port, "v2", "")])
            + &subsets(HOST)
            + &gateway(port)
            + &object(
                "VirtualService",
                "web",
                &json!({"hosts": [HOST], "gateways": ["edge"], "http": [{"name": "main", "route": [to(HOST, "v1")]}]}),
            );
        let plane = ControlPlane::start(&[("shop.yaml", text)]);
        let envoy = Envoy::start(&plane, NODE, &json!({"LABELS": {"app": "edge"}}), delta);
        let edge = Self { port, v2, _v1: v1, plane, envoy };
        edge.until("the gateway answers", |a| a.seen("name") == "v1");
        edge
    }

    fn ask(&self) -> Option<Answer> {
        get(self.port, HOST, "/", &[("x-own", "kept"), ("x-gone", "yes")]).ok()
    }

    fn until(&self, what: &str, says: impl Fn(&Answer) -> bool) -> Answer {
        wait_for(what, || self.ask().filter(|answer| says(answer)))
    }

    fn condition(&self, name: &str) -> Value {
        let page = self.plane.debug("/debug/statusz");
        let of = |row: &&Value| row["kind"] == "EnvoyFilter" && row["name"] == name;
        page.as_array()
            .into_iter()
            .flatten()
            .find(of)
            .map(|row| row["status"]["conditions"][0].clone())
            .unwrap_or_default()
    }
}

fn header(answer: &Answer, name: &str) -> String {
    answer.headers.get(name).cloned().unwrap_or_default()
}

#[test]
fn a_lua_filter_comes_changes_and_goes_while_envoy_runs() {
    let edge = Edge::open(true);
    let code =
        |word: &str| format!("function envoy_on_response(handle)\n  handle:headers():add(\"x-lua\", \"{word}\")\nend");
    for word in ["one", "two"] {
        edge.plane.write("filter.yaml", &filter("lua", &json!([before_router(&lua("lua", &code(word)))])));
        edge.until("the filter runs", |a| header(a, "x-lua") == word);
    }
    edge.plane.write("filter.yaml", "");
    edge.until("the filter is gone", |a| header(a, "x-lua").is_empty() && a.status == 200);
    edge.envoy.assert_no_nacks();
}

#[test]
fn a_local_rate_limit_written_as_a_typed_struct_refuses_what_is_too_much() {
    let edge = Edge::open(false);
    let limit = json!({"name": "envoy.filters.http.local_ratelimit", "typed_config": {
        "@type": "type.googleapis.com/udpa.type.v1.TypedStruct",
        "type_url": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
        "value": {
            "stat_prefix": "http_local_rate_limiter",
            "token_bucket": {"max_tokens": 4, "tokens_per_fill": 4, "fill_interval": "3600s"},
            "filter_enabled": {"runtime_key": "local_rate_limit_enabled", "default_value": {"numerator": 100, "denominator": "HUNDRED"}},
            "filter_enforced": {"runtime_key": "local_rate_limit_enforced", "default_value": {"numerator": 100, "denominator": "HUNDRED"}},
            "response_headers_to_add": [{"append_action": "OVERWRITE_IF_EXISTS_OR_ADD", "header": {"key": "x-local-rate-limit", "value": "true"}}],
        },
    }});
    edge.plane.write("filter.yaml", &filter("limit", &json!([before_router(&limit)])));
    let answer = edge.until("the limit is reached", |a| a.status == 429);
    assert_eq!(header(&answer, "x-local-rate-limit"), "true");
    edge.envoy.assert_no_nacks();
}

#[test]
fn responses_are_compressed_by_the_library_that_a_filter_names() {
    let edge = Edge::open(true);
    let libraries = [("brotli", "Brotli", "br"), ("zstd", "Zstd", "zstd"), ("gzip", "Gzip", "gzip")];
    for (library, message, encoding) in libraries {
        let compressor = json!({"name": "envoy.filters.http.compressor", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.compressor.v3.Compressor",
            "compressor_library": {"name": library, "typed_config": {
                "@type": format!("type.googleapis.com/envoy.extensions.compression.{library}.compressor.v3.{message}"),
            }},
        }});
        edge.plane.write("filter.yaml", &filter("compressor", &json!([before_router(&compressor)])));
        wait_for(library, || {
            let answer = get(edge.port, HOST, "/", &[("accept-encoding", encoding)]).ok()?;
            (header(&answer, "content-encoding") == encoding).then_some(())
        });
    }
    edge.envoy.assert_no_nacks();
}

#[test]
fn headers_are_changed_on_each_level_of_routes_and_in_the_connection_manager() {
    let edge = Edge::open(true);
    let add = |name: &str| json!({"header": {"key": name, "value": "added"}});
    let at = |condition: Value| json!({"context": "GATEWAY", "routeConfiguration": condition});
    let manager = json!({"typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "server_name": "own-name",
    }});
    let patches = json!([
        patch("ROUTE_CONFIGURATION", "MERGE", &at(json!({})), &json!({"response_headers_to_add": [add("x-table")]})),
        patch(
            "VIRTUAL_HOST",
            "MERGE",
            &at(json!({"vhost": {"domainName": HOST}})),
            &json!({"response_headers_to_add": [add("x-host")], "request_headers_to_remove": ["x-gone"]})
        ),
        patch(
            "HTTP_ROUTE",
            "MERGE",
            &at(json!({"vhost": {"route": {"name": "main"}}})),
            &json!({"response_headers_to_add": [add("x-route")]})
        ),
        patch(
            "HTTP_ROUTE",
            "MERGE",
            &at(json!({"vhost": {"route": {"name": "other"}}})),
            &json!({"response_headers_to_add": [add("x-other")]})
        ),
        patch(
            "NETWORK_FILTER",
            "MERGE",
            &json!({"context": "GATEWAY", "listener": {"filterChain": {"filter": {"name": MANAGER}}}}),
            &manager
        ),
    ]);
    edge.plane.write("filter.yaml", &filter("headers", &patches));
    let answer = edge.until("all headers", |a| {
        ["x-table", "x-host", "x-route"].iter().all(|name| header(a, name) == "added")
            && header(a, "server") == "own-name"
    });
    assert_eq!(header(&answer, "x-other"), "", "no route has that name");
    assert!(!answer.body.contains("x-gone") && answer.body.contains("x-own"), "{}", answer.body);
    edge.envoy.assert_no_nacks();
}

#[test]
fn clusters_are_merged_and_added_and_routes_lead_to_them() {
    let edge = Edge::open(false);
    let endpoint =
        json!({"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": edge.v2.port}}}});
    let own = json!({"name": "own", "type": "STATIC", "connect_timeout": "1s",
        "load_assignment": {"cluster_name": "own", "endpoints": [{"lb_endpoints": [endpoint]}]}});
    let gateway = json!({"context": "GATEWAY"});
    let main = json!({"context": "GATEWAY", "routeConfiguration": {"vhost": {"route": {"name": "main"}}}});
    let service = json!({"context": "GATEWAY", "cluster": {"service": HOST, "subset": "v1"}});
    let patches = json!([
        patch("CLUSTER", "ADD", &gateway, &own),
        patch("CLUSTER", "MERGE", &service, &json!({"connect_timeout": "7.5s"})),
        patch("HTTP_ROUTE", "MERGE", &main, &json!({"route": {"cluster": "own"}})),
    ]);
    edge.plane.write("filter.yaml", &filter("clusters", &patches));
    edge.until("the route leads to the added cluster", |a| a.seen("name") == "v2");
    let dump = edge.envoy.admin("/config_dump?resource=dynamic_active_clusters").unwrap().body;
    assert_eq!(dump.matches("\"7.500s\"").count(), 1, "one cluster has the patch: {dump}");
    edge.envoy.assert_no_nacks();
}

#[test]
fn a_filter_takes_its_configuration_over_ecds() {
    let edge = Edge::open(true);
    let code =
        |word: &str| format!("function envoy_on_response(handle)\n  handle:headers():add(\"x-late\", \"{word}\")\nend");
    let discovered = json!({"name": "late", "config_discovery": {
        "config_source": {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"},
        "type_urls": ["type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"],
    }});
    for word in ["one", "two"] {
        let config = patch("EXTENSION_CONFIG", "ADD", &json!({"context": "GATEWAY"}), &lua("late", &code(word)));
        edge.plane.write("filter.yaml", &filter("late", &json!([config, before_router(&discovered)])));
        edge.until("the configuration arrives", |a| header(a, "x-late") == word);
    }
    edge.envoy.assert_no_nacks();
}

#[test]
fn patches_that_do_not_fit_are_skipped_alone_and_named() {
    let edge = Edge::open(true);
    let code = "function envoy_on_response(handle)\n  handle:headers():add(\"x-lua\", \"good\")\nend";
    let manager = json!({"context": "GATEWAY", "listener": {"filterChain": {"filter": {"name": MANAGER}}}});
    let router = json!({"name": "cors", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors"}});
    let wrong = json!({"name": "wrong", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "x"}});
    let patches = json!([
        patch("NETWORK_FILTER", "MERGE", &manager, &wrong),
        patch("CLUSTER", "MERGE", &json!({"context": "GATEWAY"}), &json!({"connect_timeout": "0s"})),
        patch("HTTP_FILTER", "ADD", &manager, &router),
        patch("CLUSTER", "REPLACE", &json!({"context": "GATEWAY"}), &json!({"name": "x"})),
        before_router(&lua("lua", code)),
    ]);
    edge.plane.write("filter.yaml", &filter("mixed", &patches));
    edge.until("the patch that fits is in force", |a| header(a, "x-lua") == "good" && a.seen("name") == "v1");
    let named = wait_for("the status names the others", || {
        let text = edge.condition("mixed").to_string();
        let places = ["configPatches[0]", "configPatches[1]", "configPatches[2]", "configPatches[3]"];
        places.iter().all(|place| text.contains(place)).then_some(text)
    });
    assert!(!named.contains("configPatches[4]"), "{named}");
    edge.envoy.assert_no_nacks();
}
