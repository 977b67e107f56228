//! Family `telemetry`: Telemetries, mesh settings and a proxy in; access logs, tracing, filters of metrics, or the log of one
//! provider out.

use std::{fs, sync::Arc};

use pilothouse::{
    generate::{
        listener::{
            Builder, access_log,
            stats::StatsFilters,
            telemetry::{logs, overrides, spans},
        },
        proxy_config::ListenerClass,
    },
    model::{ConfigSnapshot, Features, Mesh, Registry, RegistrySnapshot, Service},
    proto::{
        from_json,
        istio::telemetry::v1alpha1::Telemetry,
        mesh::{MeshConfig, mesh_config::ExtensionProvider},
        to_json,
    },
    push::{ProxyView, PushContext, context::PushInputs},
};
use serde_json::{Value, json};

use crate::{
    data::{self, Case, Verdict},
    environment, generate, normal,
};

/// The service of every provider in these recordings: what is looked up was fixed there.
const HOST: &str = "grpc-als.foo.svc.cluster.local";

/// One case for each file of a test.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for folder in data::folders("telemetry") {
        for test in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
            for entry in fs::read_dir(&test).unwrap() {
                let file = entry.unwrap().path();
                let id = file.strip_prefix(&folder).unwrap().with_extension("");
                cases.push(Case { id: format!("telemetry/{}", id.display()), folder: file, proxy: String::new() });
            }
        }
    }
    cases.sort_by(|a, b| a.id.cmp(&b.id));
    cases
}

pub fn check(case: &Case) -> Verdict {
    let description = data::json(&case.folder);
    let context = context(&description);
    let mut proxy = description["proxy"].clone();
    if proxy["type"] == "" {
        proxy["type"] = "sidecar".into();
    }
    proxy["istioVersion"] = "1.32.0".into();
    let got = match description["kind"].as_str().unwrap() {
        "accessLogProvider" => log_of_provider(&context, &description["provider"]),
        kind => {
            let view = environment::view(&context, &proxy);
            let service = description["service"].is_object().then(|| service(&description["service"]));
            let applying = context.telemetries.applying(&view, service.as_ref());
            let specs: Vec<&Telemetry> = applying.iter().filter_map(|c| c.telemetry()).collect();
            match kind {
                "accessLogging" => access_logging(&context, &specs, class(&description)),
                "tracing" => tracing(&context, &specs),
                "metricsFilters" => metrics(&context, &view, &specs, &description),
                other => panic!("{other}"),
            }
        }
    };
    Verdict::of(
        normal::first_difference("result", &numbers(&description["result"]), &numbers(&got)).into_iter().collect(),
    )
}

/// Numbers in one form.
fn numbers(value: &Value) -> Value {
    match value {
        Value::Number(n) => n.as_f64().into(),
        Value::Array(list) => list.iter().map(numbers).collect(),
        Value::Object(map) => Value::Object(map.iter().map(|(k, v)| (k.clone(), numbers(v))).collect()),
        other => other.clone(),
    }
}

fn context(description: &Value) -> PushContext {
    let mut mesh = Mesh::from_values(&json!({}), &Value::Null, "cluster.local", "Kubernetes").unwrap();
    let mut config: MeshConfig = from_json(&description["mesh"], true).unwrap();
    config.root_namespace = "istio-system".to_string();
    mesh.config = Arc::new(config);
    let documents: Vec<Value> = description["configs"].as_array().cloned().unwrap_or_default();
    let (configs, _) = environment::configs(&documents, "", "", false);
    let provider = Service { hostname: HOST.into(), namespace: "foo".into(), ..Service::default() };
    let registry =
        RegistrySnapshot { services: Arc::new(vec![Arc::new(provider.stamped())]), ..RegistrySnapshot::default() };
    PushContext::build(PushInputs {
        mesh: Arc::new(mesh),
        features: Arc::new(Features::default()),
        configs: ConfigSnapshot::of(configs),
        registry,
        ..PushInputs::default()
    })
}

fn service(value: &Value) -> Service {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    Service {
        name: text("name").into(),
        namespace: text("namespace").into(),
        registry: if text("registry") == "Kubernetes" { Registry::Kubernetes } else { Registry::External },
        ..Service::default()
    }
}

fn class(description: &Value) -> ListenerClass {
    match description["class"].as_str().unwrap() {
        "sidecarInbound" => ListenerClass::SidecarInbound,
        "sidecarOutbound" => ListenerClass::SidecarOutbound,
        "gateway" => ListenerClass::Gateway,
        other => panic!("{other}"),
    }
}

fn log_of_provider(context: &PushContext, provider: &Value) -> Value {
    let mut provider = provider.clone();
    for settings in provider.as_object_mut().unwrap().values_mut().filter(|v| v["service"].is_string()) {
        settings["service"] = HOST.into();
    }
    let provider: ExtensionProvider = from_json(&provider, true).unwrap();
    access_log::of_provider(context, &provider).unwrap().map_or(Value::Null, |log| to_json(&log).unwrap())
}

fn access_logging(context: &PushContext, specs: &[&Telemetry], class: ListenerClass) -> Value {
    let Some(wanted) = logs::of_telemetries(specs, &context.mesh().config, class) else { return Value::Null };
    let shown = |spec: &logs::LogSpec| {
        let log = access_log::of_provider(context, spec.provider).unwrap()?;
        let mut shown =
            json!({"accessLog": to_json(&log).unwrap(), "disabled": spec.disabled, "provider": spec.provider.name});
        if let Some(expression) = spec.filter {
            shown["filter"] = json!({"expression": expression});
        }
        Some(shown)
    };
    wanted.iter().filter_map(shown).collect()
}

fn tracing(context: &PushContext, specs: &[&Telemetry]) -> Value {
    let side = |class| {
        let spec = spans::merge(specs, &context.mesh().config, class)?;
        let mut shown = json!({
            "disableContextPropagation": spec.no_propagation, "disabled": spec.disabled,
            "enableIstioTags": spec.istio_tags, "useRequestIDForTraceSampling": spec.use_request_id,
        });
        if let Some(provider) = spec.provider {
            shown["provider"] = provider.name.as_str().into();
        }
        if let Some(share) = spec.sampling {
            shown["randomSamplingPercentage"] = share.into();
        }
        if let Some(tags) = spec.tags {
            let tags = tags.iter().map(|(name, tag)| (name.clone(), to_json(tag).unwrap()));
            shown["customTags"] = Value::Object(tags.collect());
        }
        Some(shown)
    };
    match (side(ListenerClass::SidecarOutbound), side(ListenerClass::SidecarInbound)) {
        (Some(client), Some(server)) => json!({"client": client, "server": server}),
        (None, None) => Value::Null,
        sides => panic!("{sides:?}"),
    }
}

fn metrics(context: &PushContext, view: &ProxyView, specs: &[&Telemetry], description: &Value) -> Value {
    let metrics = overrides::of_telemetries(specs, &context.mesh().config);
    let filters = StatsFilters::of(&Builder::new(context, view), class(description), &metrics);
    if description["protocol"] == "http" {
        generate::json(&filters.http).into()
    } else {
        generate::json(&filters.tcp).into()
    }
}
