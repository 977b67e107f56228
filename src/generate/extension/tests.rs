//! Filters and configurations of extensions, for Istio's proxies and for stock Envoys.

use prost::Message;
use serde_json::{Value, json};

use super::*;
use crate::{
    generate::listener,
    model::{Config, ConfigSnapshot, Locality, Node, Origin, decode},
    proto::{envoy::extensions::wasm::v3::PluginConfig, istio::extensions::v1alpha1::WasmConfig, to_json},
    push::context::PushInputs,
};

const SHA: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn object(kind: &str, name: &str, spec: &Value) -> Arc<Config> {
    let (group, version) = if kind == "Gateway" { ("networking", "v1") } else { ("extensions", "v1alpha1") };
    let document = json!({
        "apiVersion": format!("{group}.istio.io/{version}"), "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": "7"}, "spec": spec,
    });
    Arc::new(decode::from_value(&document, Origin::default()).expect("an object"))
}

fn secret() -> Arc<Config> {
    let document = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull", "namespace": "shop"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{\"auths\":{}}"},
    });
    Arc::new(decode::from_value(&document, Origin::default()).expect("a Secret"))
}

fn context(objects: &[Arc<Config>]) -> PushContext {
    let server = json!({"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]});
    let tcp = json!({"port": {"number": 90, "name": "tcp", "protocol": "TCP"}, "hosts": ["*"]});
    let gateway = object("Gateway", "edge", &json!({"selector": {"app": "edge"}, "servers": [server, tcp]}));
    let configs = ConfigSnapshot::of(objects.iter().cloned().chain([gateway]));
    PushContext::build(PushInputs { configs, ..PushInputs::default() })
}

fn view(context: &PushContext, version: Option<&str>) -> ProxyView {
    let mut metadata = json!({"LABELS": {"app": "edge"}});
    if let Some(version) = version {
        metadata["ISTIO_VERSION"] = version.into();
    }
    let node = Node::from_parts("router~10.0.0.1~p.shop~shop.svc.cluster.local", metadata, Locality::default());
    context.view_of(&node.expect("a node"))
}

fn wasm(url: &str, more: &Value) -> Value {
    let mut wasm = json!({"url": url});
    wasm.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    wasm
}

/// The names of the HTTP filters on port 80, and the configurations that the proxy fetches.
fn sent(context: &PushContext, version: Option<&str>) -> (Vec<String>, Vec<Value>) {
    let view = view(context, version);
    let filters = Extensions::of(context, &view);
    let phases = [Phase::Authn, Phase::Authz, Phase::Stats, Phase::Unspecified];
    let http = phases.into_iter().flat_map(|phase| filters.http(phase, ListenerClass::Gateway, 80));
    let short = |name: &str| name.strip_prefix("extensions.istio.io/trafficextension/shop.").unwrap().to_string();
    let names = http.map(|filter| short(&filter.name)).collect();
    let fetched = listener::extension_names(&listener::gateway(context, &view));
    let identity = Identity::parse("spiffe://cluster.local/ns/shop/sa/edge");
    let configs = fetched.iter().filter_map(|name| configuration(context, &view, name, identity.as_ref()));
    (names, configs.map(|config| plugin_of(&config)).collect())
}

fn plugin_of(config: &TypedExtensionConfig) -> Value {
    let any = config.typed_config.as_ref().unwrap();
    let plugin: PluginConfig = match any.type_url.ends_with("filters.http.wasm.v3.Wasm") {
        true => HttpWasm::decode(any.value.as_slice()).unwrap().config.unwrap(),
        false => NetworkWasm::decode(any.value.as_slice()).unwrap().config.unwrap(),
    };
    to_json(&plugin).unwrap()
}

#[test]
fn a_stock_envoy_fetches_by_its_own_means() {
    let all = [
        object(
            "TrafficExtension",
            "lua",
            &json!({"lua": {"inlineCode": "function envoy_on_request(h) end"}, "phase": "STATS"}),
        ),
        object("TrafficExtension", "file", &json!({"wasm": wasm("file:///opt/a.wasm", &json!({})), "phase": "AUTHN"})),
        object(
            "WasmPlugin",
            "web",
            &wasm(
                "https://files.example/b.wasm",
                &json!({"sha256": SHA, "phase": "AUTHZ", "failStrategy": "FAIL_RELOAD",
            "vmConfig": {"env": [{"name": "A", "value": "b"}, {"name": "H", "valueFrom": "HOST"}]}, "imagePullSecret": "pull"}),
            ),
        ),
        secret(),
    ];
    let context = context(&all);
    let (names, configs) = sent(&context, None);
    assert_eq!(names, ["file", "web~istio-translated-wasmplugin", "lua"]);
    assert_eq!(configs.len(), 1, "Lua and modules of servers are in the listener");
    assert_eq!(configs[0]["vmConfig"]["code"]["local"]["filename"], "/opt/a.wasm");
    let filters = Extensions::of(&context, &view(&context, None));
    let web = filters.http(Phase::Authz, ListenerClass::Gateway, 80).next().unwrap();
    let Some(ConfigType::TypedConfig(any)) = web.config_type else { panic!("it is not in place") };
    let web = plugin_of(&TypedExtensionConfig { typed_config: Some(any), ..TypedExtensionConfig::default() });
    let remote = &web["vmConfig"]["code"]["remote"];
    assert_eq!((&remote["sha256"], &web["failurePolicy"]), (&json!(SHA), &json!("FAIL_RELOAD")));
    let variables = json!({"keyValues": {"A": "b"}, "hostEnvKeys": ["H"]});
    assert_eq!(web["vmConfig"]["environmentVariables"], variables, "hints for an agent are not for Envoy");
    let clusters = clusters(&context, &view(&context, None));
    assert_eq!(clusters.len(), 1);
    assert_eq!(remote["httpUri"]["cluster"], clusters[0].name);
    let cluster = to_json(&clusters[0]).unwrap().to_string();
    assert!(cluster.contains("files.example") && cluster.contains("LOGICAL_DNS"), "{cluster}");
    assert!(not_loaded(&context, &view(&context, None)).is_empty());
}

#[test]
fn a_module_that_a_stock_envoy_cannot_fetch_is_told_and_its_strategy_decides() {
    let of = |name: &str, url: &str, strategy: &str, kind: &str| {
        let wasm = wasm(url, &json!({"failStrategy": strategy, "type": kind}));
        object("TrafficExtension", name, &json!({"wasm": wasm}))
    };
    let all = [
        of("closed", "oci://reg.example/a:1", "FAIL_CLOSE", "HTTP"),
        of("open", "reg.example/a:1", "FAIL_OPEN", "HTTP"),
        of("no-digest", "https://files.example/a.wasm", "FAIL_OPEN", "HTTP"),
        of("connections", "oci://reg.example/a:1", "FAIL_CLOSE", "NETWORK"),
    ];
    let context = context(&all);
    let stock = view(&context, None);
    let (names, configs) = sent(&context, None);
    assert_eq!((names, configs.len()), (vec!["closed".to_string()], 0));
    let connections = Extensions::of(&context, &stock).before_http(ListenerClass::Gateway, 80);
    assert_eq!(connections.len(), 1);
    let told: Vec<String> = not_loaded(&context, &stock).into_iter().map(|refusal| refusal.message).collect();
    assert_eq!(told.len(), 4);
    assert_eq!(told.iter().filter(|text| text.contains("is refused")).count(), 2, "{told:?}");
    assert!(told.iter().any(|text| text.contains("sha256")) && clusters(&context, &stock).is_empty());
    let istio = view(&context, Some("1.30.0"));
    assert!(not_loaded(&context, &istio).is_empty(), "its agent fetches images");
}

#[test]
fn equal_modules_with_other_variables_run_apart() {
    let of = |name: &str, url: &str, env: &Value| {
        let wasm = wasm(url, &json!({"sha256": SHA, "vmConfig": {"env": env}}));
        object("TrafficExtension", name, &json!({"wasm": wasm}))
    };
    let vm_ids = |url: &str| {
        let variable = |value: &str| json!([{"name": "A", "value": value}]);
        let of_host = json!([{"name": "A", "valueFrom": "HOST"}]);
        let all = [json!([]), variable("1"), variable("2"), of_host, variable("1")];
        let all = all.iter().enumerate().map(|(n, env)| of(&format!("e{n}"), url, env));
        let context = context(&all.collect::<Vec<_>>());
        let stock = view(&context, None);
        let extensions = context.extensions.of(&stock);
        let config = |e: &Arc<Extension>| configuration(&context, &stock, &resource_name(e), None).unwrap();
        extensions.iter().map(|e| plugin_of(&config(e))["vmConfig"]["vmId"].to_string()).collect::<Vec<_>>()
    };
    for url in ["file:///a.wasm", "http://h/a.wasm"] {
        let ids = vm_ids(url);
        assert_eq!(ids[1], ids[4]);
        assert_eq!(ids[..4].iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{ids:?}");
    }
}

#[test]
fn the_strategy_is_in_force_while_envoy_refuses_a_file() {
    let of = |name: &str, strategy: &str, kind: &str| {
        let wasm = wasm("file:///a.wasm", &json!({"failStrategy": strategy, "type": kind}));
        object("TrafficExtension", name, &json!({"wasm": wasm}))
    };
    let all = [of("a", "FAIL_CLOSE", "HTTP"), of("b", "FAIL_OPEN", "HTTP"), of("c", "FAIL_RELOAD", "NETWORK")];
    let context = context(&all);
    let default = |source: ExtensionConfigSource| source.default_config.map(|any| any.value);
    let of_http = |version: Option<&str>| {
        let filters = Extensions::of(&context, &view(&context, version));
        let http = filters.http(Phase::Unspecified, ListenerClass::Gateway, 80);
        http.map(|filter| match filter.config_type {
            Some(ConfigType::ConfigDiscovery(source)) => default(source),
            other => panic!("{other:?}"),
        })
        .collect::<Vec<_>>()
    };
    let refusing = HttpRbac { rules: Some(Rbac::default()), ..HttpRbac::default() };
    assert_eq!(of_http(None), [Some(refusing.encode_to_vec()), Some(HttpRbac::default().encode_to_vec())]);
    assert_eq!(of_http(Some("1.30.0")), [None, None], "an agent fetches before Envoy sees the configuration");
    let connections = Extensions::of(&context, &view(&context, None)).before_http(ListenerClass::Gateway, 80);
    let Some(NetworkConfig::ConfigDiscovery(source)) = connections[0].config_type.clone() else { panic!("in place") };
    let value = default(source).expect("a default");
    assert_eq!(NetworkRbac::decode(value.as_slice()).unwrap().rules, Some(Rbac::default()));
    let stock = view(&context, None);
    let name = resource_name(&context.extensions.of(&stock)[0]);
    assert_eq!(object_of(&context, &stock, &name).unwrap().kind, crate::model::Kind::TrafficExtension);
    assert_eq!(object_of(&context, &stock, "a"), None);
}

#[test]
fn an_agent_is_sent_the_hints_and_the_secret_of_the_extension() {
    let settings = json!({"imagePullSecret": "pull", "imagePullPolicy": "Always", "pluginConfig": {"b": 1, "a": ["x"]}, "pluginName": "root"});
    let all = [object("WasmPlugin", "image", &wasm("reg.example/a:1", &settings)), secret()];
    let context = context(&all);
    let (names, configs) = sent(&context, Some("1.30.0"));
    assert_eq!((names.len(), configs.len()), (1, 1));
    let plugin = &configs[0];
    assert_eq!(plugin["vmConfig"]["code"]["remote"]["httpUri"]["uri"], "oci://reg.example/a:1");
    let variables = &plugin["vmConfig"]["environmentVariables"]["keyValues"];
    assert_eq!(variables["ISTIO_META_WASM_IMAGE_PULL_SECRET"], "{\"auths\":{}}");
    assert_eq!(variables["ISTIO_META_WASM_IMAGE_PULL_POLICY"], "Always");
    assert_eq!(variables["ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"], "7");
    assert_eq!(plugin["configuration"]["value"], "{\"a\":[\"x\"],\"b\":1}");
    assert_eq!(plugin["rootId"], "root");
    let view = view(&context, Some("1.30.0"));
    let name = resource_name(&context.extensions.of(&view)[0]);
    let unknown = plugin_of(&configuration(&context, &view, &name, None).unwrap());
    let variables = &unknown["vmConfig"]["environmentVariables"]["keyValues"];
    assert_eq!(variables["ISTIO_META_WASM_IMAGE_PULL_SECRET"], "", "no identity, no secret");
    assert!(configuration(&context, &view, "extensions.istio.io/trafficextension/bank.image", None).is_none());
}

#[test]
fn urls_of_any_form_are_taken_or_refused() {
    let source = |url: &str| {
        let wasm = WasmConfig { url: url.to_string(), sha256: SHA.to_string(), ..WasmConfig::default() };
        Source::of(&wasm, false).is_ok()
    };
    for url in ["http://h/a", "https://h:8443/a?b=c", "https://[::1]/a", "file:///a"] {
        assert!(source(url), "{url}");
    }
    for url in ["", "oci://h/a", "h/a", "https://", "https://h:0/a", "https://h:99999/a", "ftp://h/a", "https://h h/a"]
    {
        assert!(!source(url), "{url}");
    }
}
