//! Family `gateway-api-upstream`: Gateway API's own tests, as far as they ask for statuses. Their requests need a data plane
//! and are not sent here; what changes at run time in them (bumped generations) is not played. A test without any demand on
//! a status counts as not yet.

use std::{collections::BTreeMap, sync::Arc};

use pilothouse::{
    model::{ConfigKey, ConfigSnapshot, Features, Kind, Mesh, PushInputs},
    registry::ServiceEntryStore,
    translate::Translation,
};
use serde_json::{Value, json};

use crate::{
    data::{self, Case, Verdict},
    environment,
};

/// One file of demands is one case.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for folder in data::folders("gateway-api-upstream") {
        for entry in std::fs::read_dir(folder.join("expected")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            cases.push(Case { id: format!("gateway-api-upstream/{name}"), folder: folder.clone(), proxy: name });
        }
    }
    cases.sort_by(|a, b| a.id.cmp(&b.id));
    cases
}

/// Every demand on a status holds.
pub fn check(case: &Case) -> Verdict {
    let file = case.folder.join("expected").join(format!("{}.yaml", case.proxy));
    let test = data::yaml(&file).into_iter().next().unwrap();
    let seen = Seen(Translation::build(inputs(case, &test)));
    let (mut asked, mut wrong) = (0, Vec::new());
    for demand in list(&test["checks"]) {
        if let Some(complaint) = seen.check(demand) {
            asked += 1;
            wrong.extend(complaint.map(|why| format!("{} ({}): {why}", text(&demand["check"]), text(&demand["case"]))));
        }
    }
    if asked == 0 { Verdict::NotYet("asks for traffic only".into()) } else { Verdict::of(wrong) }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What a demand names, and the condition that it wants there.
struct Seen(Translation);

/// `None`: nothing is wrong.
type Complaint = Option<String>;

impl Seen {
    /// `None` when the demand is not one on a status.
    fn check(&self, demand: &Value) -> Option<Complaint> {
        let name = text(&demand["check"]);
        let condition = |key: &str| std::slice::from_ref(&demand[key]);
        let resolved = [json!({"type": "ResolvedRefs", "status": "True"})];
        if name == "routesAccepted" {
            return Some(self.routes_accepted(demand));
        }
        if let Some(kind) = name.strip_suffix("RouteMustHaveResolvedRefsConditionsTrue") {
            return Some(self.route_has(kind, demand, &resolved));
        }
        if let Some(kind) = name.strip_suffix("RouteMustHaveCondition") {
            return Some(self.route_has(kind, demand, condition("condition")));
        }
        if let Some(kind) = name.strip_suffix("RouteMustHaveParents") {
            return Some(self.has_parents(kind, demand));
        }
        if let Some(kind) = name.strip_suffix("RouteMustHaveNoAcceptedParents") {
            let accepted = [json!({"type": "Accepted", "status": "True"})];
            let status = self.status(route(kind)?, &demand["routeName"]);
            let any = list(&status["parents"]).any(|p| missing(&p["conditions"], &accepted).is_none());
            return Some(any.then(|| format!("accepted: {status}")));
        }
        let gateway = |key: &str| self.status(Kind::KubernetesGateway, &demand[key]);
        let set = |key: &str| self.status(Kind::ListenerSet, &demand[key]);
        let policy = |wanted: &[Value]| {
            let status = self.status(Kind::BackendTLSPolicy, &demand["policyNN"]);
            let of = |a: &&Value| a["ancestorRef"]["name"] == demand["gwNN"]["name"];
            match list(&status["ancestors"]).find(of) {
                Some(ancestor) => missing(&ancestor["conditions"], wanted),
                None => Some(format!("no such ancestor: {status}")),
            }
        };
        Some(match name {
            "gatewayMustHaveCondition" => missing(&gateway("gwNN")["conditions"], condition("expectedCondition")),
            "gatewayStatusMustHaveListeners" => listeners(gateway("gwNN"), &demand["listeners"]),
            "gatewayMustHaveZeroRoutes" => {
                let status = gateway("gwName");
                let routes = list(&status["listeners"]).any(|l| l["attachedRoutes"] != 0);
                routes.then(|| format!("has routes: {status}"))
            }
            "gatewayMustHaveAttachedListeners" => {
                let count = gateway("gwName")["attachedListenerSets"].as_u64().unwrap_or_default();
                (Some(count) != demand["expectedCount"].as_u64()).then(|| format!("{count} are attached"))
            }
            "gatewayListenersMustHaveConditions" => listener_conditions(gateway("gwName"), demand),
            "gatewayListenerMustHaveConditions" => {
                let named = json!({"conditions": demand["conditions"], "listenerNames": [demand["lName"]]});
                listener_conditions(gateway("gwName"), &named)
            }
            "listenerSetMustHaveCondition" => missing(&set("lsNN")["conditions"], condition("expectedCondition")),
            "listenerSetListenersMustHaveConditions" => listener_conditions(set("lsName"), demand),
            "listenerSetStatusMustHaveListeners" => listeners(set("lsNN"), &demand["listeners"]),
            "backendTLSPolicyMustHaveCondition" => policy(condition("condition")),
            "backendTLSPolicyMustHaveAcceptedConditionTrue" => policy(&[json!({"type": "Accepted", "status": "True"})]),
            _ => return None,
        })
    }

    fn status(&self, kind: Kind, named: &Value) -> &Value {
        let key = ConfigKey { kind, namespace: text(&named["namespace"]).into(), name: text(&named["name"]).into() };
        self.0.statuses.get(&key).unwrap_or(&Value::Null)
    }

    fn routes_accepted(&self, demand: &Value) -> Complaint {
        let (gateway, set) =
            (self.status(Kind::KubernetesGateway, &demand["gw"]), self.status(Kind::ListenerSet, &demand["gw"]));
        let of_set = gateway.is_null();
        let gateway = if of_set { set } else { gateway };
        let good = [json!({"type": "Accepted", "status": "True"}), json!({"type": "Programmed", "status": "True"})];
        if let Some(why) = missing(&gateway["conditions"], &good) {
            return Some(why);
        }
        if !of_set && list(&gateway["addresses"]).next().is_none() {
            return Some(format!("no address: {gateway}"));
        }
        let kind = text(&demand["routeType"]).trim_end_matches("Route").to_string();
        list(&demand["routeNNs"]).find_map(|named| {
            let one = json!({"gwNN": demand["gw"], "routeNN": named});
            self.route_has(&kind, &one, &good[..1])
        })
    }

    /// The parents of a route that are the gateway of the demand have the conditions.
    fn route_has(&self, kind: &str, demand: &Value, wanted: &[Value]) -> Complaint {
        let Some(kind) = route(kind) else { return Some("no such kind".into()) };
        let status = self.status(kind, &demand["routeNN"]);
        let of = |p: &&Value| p["parentRef"]["name"] == demand["gwNN"]["name"];
        let mut parents = list(&status["parents"]).filter(of).peekable();
        if parents.peek().is_none() {
            return Some(format!("no such parent: {status}"));
        }
        parents.find_map(|p| missing(&p["conditions"], wanted))
    }

    fn has_parents(&self, kind: &str, demand: &Value) -> Complaint {
        let status = self.status(route(kind)?, &demand["routeName"]);
        let wanted: Vec<&Value> = list(&demand["parents"]).collect();
        if list(&status["parents"]).count() != wanted.len() {
            return Some(format!("wanted {} parents: {status}", wanted.len()));
        }
        let held = |wanted: &&&Value| {
            let conditions: Vec<Value> = list(&wanted["conditions"]).cloned().collect();
            list(&status["parents"]).any(|p| {
                let same = |key: &str| p["parentRef"][key].is_null() || p["parentRef"][key] == wanted["parentRef"][key];
                same("name") && same("sectionName") && same("port") && missing(&p["conditions"], &conditions).is_none()
            })
        };
        wanted.iter().find(|w| !held(w)).map(|w| format!("wanted {w}: {status}"))
    }
}

fn route(kind: &str) -> Option<Kind> {
    Some(match kind.to_lowercase().as_str() {
        "http" => Kind::HTTPRoute,
        "grpc" => Kind::GRPCRoute,
        "tcp" => Kind::TCPRoute,
        "tls" => Kind::TLSRoute,
        _ => return None,
    })
}

/// A wanted condition that is not there. A reason counts where one is given.
fn missing(conditions: &Value, wanted: &[Value]) -> Complaint {
    let holds = |wanted: &&Value| {
        list(conditions).any(|c| {
            let reason = text(&wanted["reason"]);
            c["type"] == wanted["type"]
                && c["status"] == wanted["status"]
                && (reason.is_empty() || c["reason"] == wanted["reason"])
        })
    };
    wanted.iter().find(|w| !holds(w)).map(|w| format!("wanted {w} in {conditions}"))
}

fn listeners(status: &Value, wanted: &Value) -> Complaint {
    if list(&status["listeners"]).count() != list(wanted).count() {
        return Some(format!("wanted {wanted}: {status}"));
    }
    list(wanted).find_map(|wanted| {
        let Some(got) = list(&status["listeners"]).find(|l| l["name"] == wanted["name"]) else {
            return Some(format!("no listener {}: {status}", wanted["name"]));
        };
        let kinds =
            |l: &Value| -> Vec<String> { list(&l["supportedKinds"]).map(|k| text(&k["kind"]).into()).collect() };
        let routes = |l: &Value| l["attachedRoutes"].as_u64().unwrap_or_default();
        let all_kinds = kinds(wanted).iter().all(|k| kinds(got).contains(k));
        if routes(got) != routes(wanted) || !all_kinds {
            return Some(format!("wanted {wanted}, got {got}"));
        }
        let conditions: Vec<Value> = list(&wanted["conditions"]).cloned().collect();
        missing(&got["conditions"], &conditions)
    })
}

fn listener_conditions(status: &Value, demand: &Value) -> Complaint {
    let names: Vec<&Value> = list(&demand["listenerNames"]).collect();
    let conditions: Vec<Value> = list(&demand["conditions"]).cloned().collect();
    let asked = |l: &&Value| names.is_empty() || names.contains(&&l["name"]);
    let mut found = list(&status["listeners"]).filter(asked).peekable();
    if found.peek().is_none() {
        return Some(format!("no such listener: {status}"));
    }
    found.find_map(|l| missing(&l["conditions"], &conditions))
}

/// Base and test manifests, with what a cluster adds: certificates that the suite makes, and a Service with a pod for every
/// Gateway, as Istio deploys it.
fn inputs(case: &Case, test: &Value) -> PushInputs {
    let mut documents = manifests(&case.folder.join("base/manifests.yaml"));
    for file in list(&test["manifests"]) {
        documents.extend(manifests(&case.folder.join(text(file))));
    }
    documents.extend(credentials());
    let deployed: Vec<Value> = documents.iter().flat_map(|d| deployed(d, &documents)).collect();
    documents.extend(deployed);
    let (configs, _) = environment::configs(&documents, "", "default", false);
    let (mesh, features) = (Arc::new(Mesh::default()), Arc::new(Features::default()));
    let configs = ConfigSnapshot::of(configs);
    let registry = ServiceEntryStore::of(mesh.clone(), features.clone(), &configs).snapshot();
    PushInputs { mesh, features, configs, registry }
}

fn manifests(path: &std::path::Path) -> Vec<Value> {
    data::yaml(path).into_iter().map(with_class).collect()
}

/// Manifests leave the name of the class open.
fn with_class(value: Value) -> Value {
    match value {
        Value::String(text) => text.replace("{GATEWAY_CLASS_NAME}", "istio").into(),
        Value::Array(list) => list.into_iter().map(with_class).collect(),
        Value::Object(map) => map.into_iter().map(|(k, v)| (k, with_class(v))).collect(),
        other => other,
    }
}

/// The Service and the endpoint of a Gateway.
fn deployed(document: &Value, all: &[Value]) -> Vec<Value> {
    if document["kind"] != "Gateway" {
        return Vec::new();
    }
    let (name, namespace) = (text(&document["metadata"]["name"]), text(&document["metadata"]["namespace"]));
    let attached = all.iter().filter(|d| d["kind"] == "ListenerSet" && d["spec"]["parentRef"]["name"] == name);
    let listeners = std::iter::once(document).chain(attached).flat_map(|d| list(&d["spec"]["listeners"]));
    let mut ports: BTreeMap<u64, ()> = BTreeMap::new();
    for listener in listeners {
        let default = if listener["protocol"] == "HTTPS" { 443 } else { 80 };
        ports.insert(listener["port"].as_u64().unwrap_or(default), ());
    }
    let service = format!("{name}-istio");
    let port = |number: &u64| json!({"name": format!("p-{number}"), "port": number, "protocol": "TCP"});
    let ports: Vec<Value> = ports.keys().map(port).collect();
    let meta = json!({"name": service, "namespace": namespace, "labels": {
        "kubernetes.io/service-name": service, "gateway.istio.io/managed": "istio.io-gateway-controller"}});
    vec![
        json!({"apiVersion": "v1", "kind": "Service", "metadata": meta,
            "spec": {"type": "LoadBalancer", "clusterIP": "10.9.9.9", "clusterIPs": ["10.9.9.9"], "ports": ports,
                "selector": {"gateway.networking.k8s.io/gateway-name": name}},
            "status": {"loadBalancer": {"ingress": [{"ip": "172.18.0.5"}]}}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta,
            "addressType": "IPv4", "ports": ports,
            "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": true}}]}),
    ]
}

/// Certificates that the suite makes before its tests.
fn credentials() -> Vec<Value> {
    let made = rcgen::generate_simple_self_signed(vec!["*.example.com".to_string()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let infra = "gateway-conformance-infra";
    let pairs = [
        ("gateway-conformance-web-backend", "certificate"),
        (infra, "tls-validity-checks-certificate"),
        (infra, "tls-passthrough-checks-certificate"),
        (infra, "tls-terminate-checks-certificate"),
        (infra, "tls-checks-client-certificate"),
        ("gateway-conformance-app-backend", "tls-passthrough-checks-certificate"),
    ];
    let roots = [
        (infra, "tls-checks-ca-certificate"),
        (infra, "mismatch-ca-certificate"),
        (infra, "tls-validity-checks-ca-certificate"),
        (infra, "tls-validity-checks-per-port-ca-certificate"),
    ];
    let secret = |(namespace, name): (&str, &str)| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
            "type": "kubernetes.io/tls", "stringData": {"tls.crt": certificate, "tls.key": key}})
    };
    let map = |(namespace, name): (&str, &str)| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
            "data": {"ca.crt": certificate}})
    };
    pairs.into_iter().map(secret).chain(roots.into_iter().map(map)).collect()
}
