//! Shared by the tests of outages: a host in two versions behind gateways of every API, and the reports of sources.

use std::{ffi::OsString, fs, path::Path};

use serde_json::{Value, json};

use crate::{
    admin::{Admin, documents},
    config::{gateway_of, object, service, subsets, to},
    http::{Echo, get},
    mesh::{ControlPlane, Envoy},
    process::{free_port, wait_for, wait_until},
    traffic::Traffic,
};

/// The host behind Istio's Gateways.
pub const HOST: &str = "web.example";

/// The CRDs that all of it needs.
pub const CRDS: [&str; 7] = [
    "serviceentries.networking.istio.io",
    "destinationrules.networking.istio.io",
    "gateways.networking.istio.io",
    "virtualservices.networking.istio.io",
    "gatewayclasses.gateway.networking.k8s.io",
    "gateways.gateway.networking.k8s.io",
    "httproutes.gateway.networking.k8s.io",
];

fn node(app: &str) -> String {
    format!("router~127.0.0.1~{app}.istio-system~istio-system.svc.cluster.local")
}

/// Objects of two gateways, `edge` and `rim`, in front of two versions of `web.example`.
pub struct Shop {
    /// Where `edge` listens.
    pub port: u16,
    /// Where `rim` does.
    pub rim_port: u16,
    v1: Echo,
    v2: Echo,
}

impl Shop {
    pub fn open() -> Self {
        Self { port: free_port(), rim_port: free_port(), v1: Echo::start("v1"), v2: Echo::start("v2") }
    }

    /// All objects; requests go to this version.
    pub fn objects(&self, version: &str) -> String {
        self.behind_gateways(HOST, version) + &gateway_of("edge", self.port) + &gateway_of("rim", self.rim_port)
    }

    /// A host with both versions of it behind the gateways; requests go to this version.
    pub fn behind_gateways(&self, host: &str, version: &str) -> String {
        let endpoints = [(self.v1.port, "v1", ""), (self.v2.port, "v2", "")];
        service(host, 80, "HTTP", &endpoints) + &subsets(host) + &Self::route_of(host, version)
    }

    /// The VirtualService of a host.
    pub fn route_of(host: &str, version: &str) -> String {
        let route = json!({"hosts": [host], "gateways": ["edge", "rim"], "http": [{"route": [to(host, version)]}]});
        object("VirtualService", &host.replace('.', "-"), &route)
    }

    /// The VirtualService.
    pub fn route(version: &str) -> String {
        Self::route_of(HOST, version)
    }

    /// The Envoy of `edge` on one of these control planes, once it answers. It is that of an Ingress too.
    pub fn edge_of(&self, planes: &[&ControlPlane], version: &str) -> Envoy {
        let labels = json!({"LABELS": {"app": "edge", "istio": "ingressgateway"}});
        let ports: Vec<u16> = planes.iter().map(|plane| plane.grpc_port).collect();
        let envoy = Envoy::connect_any(&ports, &node("edge"), &labels, true);
        self.until_edge_answers(version);
        envoy
    }

    /// The Envoy of `edge`, once it answers.
    pub fn edge(&self, plane: &ControlPlane) -> Envoy {
        self.edge_of(&[plane], "v1")
    }

    /// The Envoy of `rim`, once it answers.
    pub fn rim(&self, plane: &ControlPlane, version: &str) -> Envoy {
        let envoy = Envoy::start(plane, &node("rim"), &json!({"LABELS": {"app": "rim"}}), true);
        until_answered(self.rim_port, HOST, version);
        envoy
    }

    pub fn until_edge_answers(&self, version: &str) {
        until_answered(self.port, HOST, version);
    }

    pub fn until_both_answer(&self, version: &str) {
        self.until_edge_answers(version);
        until_answered(self.rim_port, HOST, version);
    }
}

/// Waits until a version answers for a host at a port.
pub fn until_answered(port: u16, host: &str, version: &str) {
    wait_for(&format!("{version} answers for {host}"), || {
        get(port, host, "/", &[]).ok().filter(|a| a.status == 200 && a.seen("name") == version)
    });
}

/// More ways into a cluster through the Envoy of `edge`: an Ingress and an HTTPRoute, to a Service with the endpoints of a
/// version.
pub struct Doors<'a> {
    shop: &'a Shop,
    ingress_port: u16,
    route_port: u16,
}

const BEHIND_INGRESS: &str = "ingress.example";
const BEHIND_ROUTE: &str = "route.example";

/// A Service of one port, and its endpoint on this machine.
fn kubernetes_service((namespace, name): (&str, &str), port: u16, target: u16, selector: &Value) -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": selector, "ports": [{"name": "http", "port": port, "targetPort": target}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
            "ports": [{"name": "http", "port": target}],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}]}),
    ]
}

/// The pod of the Envoy, which the Services of its gateways select.
fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "edge", "namespace": "istio-system", "labels": {"app": "edge", "istio": "ingressgateway"}},
        "spec": {"containers": [{"name": "envoy", "image": "envoy"}]}})
}

impl<'a> Doors<'a> {
    pub fn of(shop: &'a Shop) -> Self {
        Self { shop, ingress_port: free_port(), route_port: free_port() }
    }

    /// Applies all objects; requests go to this version.
    pub async fn open(&self, admin: &Admin, version: &str) {
        apply(admin, &self.objects(version)).await;
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let status =
            json!({"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}], "phase": "Running", "conditions": ready});
        admin.set_status(&pod(), status).await;
    }

    fn objects(&self, version: &str) -> String {
        let echo = if version == "v1" { &self.shop.v1 } else { &self.shop.v2 };
        let backend = json!({"service": {"name": "backend", "port": {"number": 8080}}});
        let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
        // A Gateway with a Deployment of its own would not share its router with Gateways of other namespaces.
        let address = json!({"type": "Hostname", "value": "door.istio-system.svc.cluster.local"});
        let everybody = json!({"namespaces": {"from": "All"}});
        let listener = json!({"name": "http", "port": self.route_port, "protocol": "HTTP", "allowedRoutes": everybody});
        let mut all = vec![
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "istio"},
                "spec": {"controller": "istio.io/ingress-controller"}}),
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "door", "namespace": "shop"},
                "spec": {"ingressClassName": "istio", "rules": [{"host": BEHIND_INGRESS, "http": {"paths": paths}}]}}),
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "istio"},
                "spec": {"controllerName": "istio.io/gateway-controller"}}),
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": {"name": "door", "namespace": "istio-system"},
                "spec": {"gatewayClassName": "istio", "addresses": [address], "listeners": [listener]}}),
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
                "metadata": {"name": "door", "namespace": "shop"},
                "spec": {"parentRefs": [{"name": "door", "namespace": "istio-system"}], "hostnames": [BEHIND_ROUTE],
                    "rules": [{"backendRefs": [{"name": "backend", "port": 8080}]}]}}),
            pod(),
        ];
        let of_edge = json!({"app": "edge"});
        let (ingress, route) = (("istio-system", "istio-ingressgateway"), ("istio-system", "door"));
        all.extend(kubernetes_service(ingress, 80, self.ingress_port, &of_edge));
        all.extend(kubernetes_service(route, self.route_port, self.route_port, &of_edge));
        all.extend(kubernetes_service(("shop", "backend"), 8080, echo.port, &Value::Null));
        all.iter().map(|object| format!("---\n{object}\n")).collect()
    }

    /// Waits until requests through each of them are answered by this version.
    pub fn until_answered_by(&self, version: &str) {
        until_answered(self.ingress_port, BEHIND_INGRESS, version);
        until_answered(self.route_port, BEHIND_ROUTE, version);
    }

    /// Requests through each of them.
    pub fn traffic(&self) -> Vec<Traffic> {
        vec![Traffic::start(self.ingress_port, BEHIND_INGRESS), Traffic::start(self.route_port, BEHIND_ROUTE)]
    }
}

/// Applies documents to a cluster.
pub async fn apply(admin: &Admin, objects: &str) {
    for object in documents(objects) {
        admin.apply_soon(&object).await;
    }
}

/// Waits until the sources whose names begin so are in this state and say this of themselves.
pub fn until_sources(plane: &ControlPlane, prefix: &str, state: &str, says: impl Fn(&Value) -> bool) {
    wait_until(&format!("{prefix} is {state}"), || {
        let page = plane.debug("/debug/sourcez");
        let ours = |s: &&Value| s["source"].as_str().is_some_and(|id| id.starts_with(prefix));
        let sources: Vec<&Value> = page.as_array().into_iter().flatten().filter(ours).collect();
        let right = !sources.is_empty() && sources.iter().all(|s| s["state"] == state && says(s));
        if right { Ok(()) } else { Err(format!("{sources:#?}")) }
    });
}

/// The error in a source's report.
pub fn error(source: &Value) -> &str {
    source["last_error"].as_str().unwrap_or_default()
}

/// The source is well, or is again.
pub fn until_well(plane: &ControlPlane, prefix: &str) {
    until_sources(plane, prefix, "synced", |s| error(s).is_empty() && s.get("saved_at").is_none());
}

/// The source fails and says so.
pub fn until_stale(plane: &ControlPlane, prefix: &str) {
    until_sources(plane, prefix, "stale", |s| !error(s).is_empty());
}

/// The process serves its saved content.
pub fn until_saved_is_served(plane: &ControlPlane, prefix: &str) {
    let says = |s: &Value| !error(s).is_empty() && s["saved_at"].is_u64() && s["age_seconds"].is_u64();
    until_sources(plane, prefix, "stale", says);
}

/// Waits until the content of so many sources is on disk.
pub fn until_saved(state: &Path, sources: usize) {
    let saved = || fs::read_dir(state).into_iter().flatten().flatten();
    let is_whole = |name: OsString| name.to_string_lossy().ends_with(".last-good");
    wait_for("the last good content is saved", || {
        (saved().filter(|f| is_whole(f.file_name())).count() >= sources).then_some(())
    });
}

pub fn arguments(all: &[(&str, &Path)]) -> Vec<OsString> {
    all.iter().flat_map(|(flag, value)| [OsString::from(flag), value.as_os_str().to_owned()]).collect()
}
