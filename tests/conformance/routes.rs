//! Family `routes`: one VirtualService and its surroundings in, Envoy routes in order out.

use std::{collections::HashMap, fs};

use pilothouse::{
    generate::route::{InferencePool, Lookup, RouteOptions, VirtualServiceRoutes},
    model::{Labels, Mesh, Origin, Port, Protocol, Service, decode},
    proto::{
        envoy::config::route::v3::Route,
        from_json,
        networking::{Destination, load_balancer_settings::ConsistentHashLb},
    },
};
use serde_json::Value;

use crate::{
    data::{self, Case, Verdict},
    environment, generate,
};

/// One file is one case.
pub fn cases() -> Vec<Case> {
    let files = data::folders("routes").into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut cases: Vec<_> = files
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .map(|path| {
            let id = format!("routes/{}", path.file_stem().unwrap().to_string_lossy());
            Case { id, folder: path, proxy: String::new() }
        })
        .collect();
    cases.sort_by(|a, b| a.id.cmp(&b.id));
    cases
}

/// Exact, including order.
pub fn check(case: &Case) -> Verdict {
    let value = data::json(&case.folder);
    let (got, wanted) = routes(&value);
    if value["error"].is_string() == got.is_empty() && got == wanted {
        return Verdict::Passed;
    }
    Verdict::Failed(vec![format!(
        "expected {} / got {}",
        Value::from(generate::json(&wanted)),
        Value::from(generate::json(&got))
    )])
}

struct Recorded {
    services: HashMap<String, Service>,
    hashes: HashMap<(usize, usize), ConsistentHashLb>,
    pools: HashMap<String, InferencePool>,
}

impl Lookup for Recorded {
    fn service(&self, host: &str) -> Option<&Service> {
        self.services.get(host)
    }

    fn consistent_hash(&self, http: usize, destination: usize, _: &Destination) -> Option<ConsistentHashLb> {
        self.hashes.get(&(http, destination)).cloned()
    }

    fn inference_pool(&self, rule: &str) -> Option<InferencePool> {
        self.pools.get(rule).cloned()
    }
}

fn service(value: &Value) -> Service {
    let ports = value["ports"].as_array().into_iter().flatten().map(|p| Port {
        name: p["name"].as_str().unwrap().into(),
        port: p["port"].as_u64().unwrap() as u32,
        protocol: Protocol::parse(p["protocol"].as_str().unwrap()),
    });
    Service {
        hostname: value["hostname"].as_str().unwrap().into(),
        namespace: value["namespace"].as_str().unwrap().into(),
        ports: ports.collect(),
        mesh_external: value["meshExternal"] == true,
        ..Default::default()
    }
}

fn recorded(value: &Value) -> Recorded {
    let list = |key: &str| value[key].as_array().cloned().unwrap_or_default();
    let pools = value["inferencePools"].as_object().into_iter().flatten().map(|(name, p)| {
        let pool = InferencePool {
            fqdn: p["FQDN"].as_str().unwrap().into(),
            port: p["Port"].as_str().unwrap().parse().unwrap(),
            failure_mode_allow: p["FailureModeAllow"] == true,
        };
        (name.clone(), pool)
    });
    Recorded {
        services: list("services").iter().map(|s| (s["hostname"].as_str().unwrap().to_string(), service(s))).collect(),
        hashes: list("hashes")
            .iter()
            .map(|h| {
                let place = (h["http"].as_u64().unwrap() as usize, h["destination"].as_u64().unwrap() as usize);
                (place, from_json(&h["consistentHash"], true).unwrap())
            })
            .collect(),
        pools: pools.collect(),
    }
}

/// Our routes, and the recorded ones.
fn routes(value: &Value) -> (Vec<Route>, Vec<Route>) {
    let surroundings = recorded(value);
    let features = environment::features(&value["featureFlags"]);
    let mesh = Mesh::from_values(&value["mesh"], &Value::Null, "cluster.local", "Kubernetes").unwrap();
    let config = decode::from_value(&value["virtualService"], Origin::default()).unwrap();
    let gateways: Vec<&str> = value["gatewayNames"].as_array().unwrap().iter().map(|g| g.as_str().unwrap()).collect();
    let labels: Labels = serde_json::from_value(value["proxy"]["labels"].clone()).unwrap_or_default();
    let proxy_headers = mesh.config.default_config.as_ref().and_then(|c| c.proxy_headers.as_ref());
    let options = RouteOptions {
        labels: &labels,
        namespace: value["proxy"]["metadata"]["NAMESPACE"].as_str().unwrap_or_default(),
        proxyless: false,
        listen_port: value["listenPort"].as_u64().unwrap() as u32,
        tls: value["isTLS"] == true,
        http3_alt_svc: value["http3AltSvc"] == true,
        append_x_forwarded_host: proxy_headers
            .and_then(|h| h.x_forwarded_host.as_ref())
            .is_some_and(|h| h.enabled == Some(true)),
        default_retry: mesh.config.default_http_retry_policy.as_ref(),
        features: &features,
    };
    let got = VirtualServiceRoutes::resolve(&config, options, &gateways, &surroundings)
        .map(|r| r.build())
        .unwrap_or_default();
    let wanted =
        value["routes"].as_array().into_iter().flatten().map(|r| from_json(r, true).unwrap()).collect::<Vec<Route>>();
    (got, wanted)
}
