//! The Envoys of the tests: a router for each Gateway that is asked something, a sidecar for each client of a mesh test.

use std::{collections::BTreeMap, net::SocketAddr};

use serde_json::{Value, json};

use super::cluster::{Plan, Pod, proxy_name};
use crate::envoy::Envoy;

/// Running Envoys by `NAMESPACE/NAME`.
#[derive(Default)]
pub struct Proxies {
    routers: BTreeMap<String, Envoy>,
    sidecar: Option<(String, Envoy)>,
}

impl Proxies {
    /// The number of running proxies.
    pub fn count(&self) -> usize {
        self.routers.len() + usize::from(self.sidecar.is_some())
    }

    /// Keeps the routers of these Gateways alone, and starts those that do not run.
    pub fn route(&mut self, gateways: &[String], kept: &[String], plan: &mut Plan, grpc_port: u16) {
        self.routers.retain(|name, _| gateways.contains(name) || kept.contains(name));
        for key in gateways {
            if self.routers.contains_key(key) {
                continue;
            }
            let (namespace, name) = key.split_once('/').unwrap();
            let address = plan.address(&format!("gateway/{key}"));
            let node = format!("router~{address}~{}-0.{namespace}~{namespace}.svc.cluster.local", proxy_name(name));
            let labels = json!({"gateway.networking.k8s.io/gateway-name": name});
            let metadata = json!({"LABELS": labels, "NAMESPACE": namespace, "SERVICE_ACCOUNT": proxy_name(name)});
            self.routers.insert(key.clone(), Envoy::connect(grpc_port, &node, &metadata, true));
        }
    }

    /// The sidecar of this pod, the only one: its listeners bind the ports of services on the loopback interface.
    pub fn beside(&mut self, pod: Option<&Pod>, grpc_port: u16) {
        let wanted = pod.map(|p| p.address.clone());
        if self.sidecar.as_ref().map(|(address, _)| address) == wanted.as_ref() {
            return;
        }
        self.sidecar = None;
        let Some(pod) = pod else { return };
        let (name, namespace, address) = (&pod.name, &pod.namespace, &pod.address);
        let node = format!("sidecar~{address}~{name}.{namespace}~{namespace}.svc.cluster.local");
        let metadata = json!({"INTERCEPTION_MODE": "NONE", "LABELS": Value::Object(pod.labels.clone()),
            "NAMESPACE": namespace});
        self.sidecar = Some((address.clone(), Envoy::connect(grpc_port, &node, &metadata, true)));
    }

    /// The refusals of the Envoys.
    pub fn rejected(&self) -> Vec<String> {
        let all = self.routers.values().chain(self.sidecar.as_ref().map(|(_, e)| e));
        all.map(Envoy::rejected).filter(|r| !r.is_empty()).collect()
    }
}

/// Where the port of a Gateway is bound.
pub fn address(gateway: &str, port: u64, plan: &mut Plan) -> SocketAddr {
    ([127, 0, 0, 1], plan.port(gateway, port)).into()
}
