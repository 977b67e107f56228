//! The recorded family `routes`: one VirtualService and its surroundings in, Envoy routes in order out.

use std::{collections::HashMap, path::PathBuf};

use serde_json::Value;

use super::{InferencePool, Lookup, RouteOptions, VirtualServiceRoutes};
use crate::{
    model::{Features, Labels, Mesh, Origin, Port, Protocol, Service, decode},
    proto::{
        envoy::config::route::v3::Route,
        from_json,
        networking::{Destination, load_balancer_settings::ConsistentHashLb},
    },
};

struct Case {
    services: HashMap<String, Service>,
    hashes: HashMap<(usize, usize), ConsistentHashLb>,
    pools: HashMap<String, InferencePool>,
}

impl Lookup for Case {
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

fn case(value: &Value) -> Case {
    let list = |key: &str| value[key].as_array().cloned().unwrap_or_default();
    let pools = value["inferencePools"].as_object().into_iter().flatten().map(|(name, p)| {
        let pool = InferencePool {
            fqdn: p["FQDN"].as_str().unwrap().into(),
            port: p["Port"].as_str().unwrap().parse().unwrap(),
            failure_mode_allow: p["FailureModeAllow"] == true,
        };
        (name.clone(), pool)
    });
    Case {
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

/// The routes of a case as JSON texts, and what was recorded.
fn run(value: &Value) -> (Vec<Route>, Vec<Route>) {
    let case = case(value);
    let mut features = Features::default();
    for (name, flag) in value["featureFlags"].as_object().into_iter().flatten() {
        features.set(name, &flag.to_string()).unwrap();
    }
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
    let routes =
        VirtualServiceRoutes::resolve(&config, options, &gateways, &case).map(|r| r.build()).unwrap_or_default();
    let expected =
        value["routes"].as_array().into_iter().flatten().map(|r| from_json(r, true).unwrap()).collect::<Vec<Route>>();
    (routes, expected)
}

#[test]
fn recorded_routes_are_met() {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance");
    let root = std::env::var_os("PILOTHOUSE_CONFORMANCE").map_or(default, PathBuf::from);
    let Ok(folder) = std::fs::read_dir(root.join("routes")) else {
        println!("routes: no recordings at {}", root.display());
        return;
    };
    let mut failed = Vec::new();
    let mut passed = 0;
    for entry in folder.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "json")) {
        let value: Value = serde_json::from_slice(&std::fs::read(&entry).unwrap()).unwrap();
        let (routes, expected) = run(&value);
        let wants_error = value["error"].is_string();
        if routes == expected && (wants_error == routes.is_empty()) {
            passed += 1;
        } else {
            failed.push(format!("{}\n  got  {routes:?}\n  want {expected:?}", entry.display()));
        }
    }
    println!("routes: {passed} passed, {} failed", failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
