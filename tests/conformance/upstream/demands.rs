//! The demands of a test on statuses. A test without any counts as not yet.

use std::{collections::BTreeMap, sync::Arc};

use pilothouse::{
    model::{ConfigKey, ConfigSnapshot, Features, Kind, Mesh, PushInputs},
    registry::ServiceEntryStore,
    translate::Translation,
};
use serde_json::{Value, json};

use super::{cluster, cluster::Plan, list, requests::is_request, text};
use crate::{
    data::{Case, Verdict},
    environment,
};

/// Demands that say something about the requests beside them, which are sent and compared there.
const BESIDE_REQUESTS: &[&str] = &[
    // The client of the requests that follow.
    "meshClient",
    // `mirroredTo` of the next request says the same.
    "mirroredRequest",
    // The next request is sent to that address.
    "expectAddressBeAvailable",
    // The recording does not say which answers they get.
    "echoSendOnce",
    "captureRoundTrip",
];

/// Every demand on a status holds.
pub fn check(case: &Case) -> Verdict {
    let test = super::test(case);
    let mut manifests = super::manifests_of(case, &test);
    let translate = |documents: Vec<Value>| {
        let inputs = inputs_of(&cluster::complete(documents, &mut Plan::on_paper()));
        let generations = inputs.configs.by_kind.values().flat_map(|list| list.iter());
        let generations = generations.map(|config| (config.key(), config.meta.generation)).collect();
        Seen { statuses: Translation::build(inputs).statuses, generations }
    };
    let mut seen = None;
    let (mut asked, mut wrong) = (0, Vec::new());
    for demand in list(&test["checks"]) {
        if manifests.before(demand) || seen.is_none() {
            seen = Some(translate(manifests.documents()));
        }
        let Some(seen) = &seen else { continue };
        let name = text(&demand["check"]);
        match seen.complaint(demand) {
            Some(complaint) => {
                asked += 1;
                wrong.extend(complaint.map(|why| format!("{name} ({}): {why}", text(&demand["case"]))));
            }
            None if is_request(demand) || BESIDE_REQUESTS.contains(&name) => {}
            None => wrong.push(format!("{name} is a demand that is not known here")),
        }
    }
    if asked == 0 { Verdict::NotYet("asks for traffic only".into()) } else { Verdict::of(wrong) }
}

/// The statuses of the objects of a test.
pub struct Seen {
    statuses: BTreeMap<ConfigKey, Value>,
    generations: BTreeMap<ConfigKey, i64>,
}

/// `None`: nothing is wrong.
pub type Complaint = Option<String>;

impl Seen {
    /// The statuses in objects as an API server gives them.
    pub fn of_objects(objects: &[Value]) -> Self {
        let mut seen = Self { statuses: BTreeMap::new(), generations: BTreeMap::new() };
        for object in objects {
            let Some(kind) = Kind::parse(text(&object["apiVersion"]), text(&object["kind"])) else { continue };
            let key = key_of(kind, &object["metadata"]);
            seen.generations.insert(key.clone(), object["metadata"]["generation"].as_i64().unwrap_or_default());
            seen.statuses.insert(key, object["status"].clone());
        }
        seen
    }

    /// The status of an object; `Null` without one.
    pub fn status_of(&self, key: &ConfigKey) -> &Value {
        self.statuses.get(key).unwrap_or(&Value::Null)
    }

    /// The complaint about a demand on a status; `None` when it is met.
    pub fn complaint(&self, demand: &Value) -> Option<Complaint> {
        self.check(demand).or_else(|| self.is_latest(demand))
    }

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
            "waitForGatewayAddress" => {
                let status = gateway("gwRef");
                list(&status["addresses"]).next().is_none().then(|| format!("no address: {status}"))
            }
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
            "gatewayClassMustHaveAcceptedConditionAny" => {
                let named = json!({"name": demand["gwcName"]});
                let status = self.status(Kind::GatewayClass, &named);
                let accepted = list(&status["conditions"]).any(|c| c["type"] == "Accepted");
                (!accepted).then(|| format!("no condition Accepted: {status}"))
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
        self.status_of(&key_of(kind, named))
    }

    /// The complaint about a status of an earlier generation; `None` when the demand does not ask for the last one.
    fn is_latest(&self, demand: &Value) -> Option<Complaint> {
        let (kind, key) = match text(&demand["check"]) {
            "gatewayMustHaveLatestConditions" => (Kind::KubernetesGateway, "gwNN"),
            "gatewayClassMustHaveLatestConditions" => (Kind::GatewayClass, "gwcNN"),
            "httpRouteMustHaveLatestConditions" => (Kind::HTTPRoute, "rNN"),
            "backendTLSPolicyMustHaveLatestConditions" => return Some(self.latest_policies()),
            _ => return None,
        };
        let status = self.status(kind, &demand[key]);
        let generation = self.generations.get(&key_of(kind, &demand[key])).copied().unwrap_or_default();
        Some(observed(status, generation))
    }

    /// As above, for the policies of the test that were changed: the recording does not name one.
    fn latest_policies(&self) -> Complaint {
        let changed = self.generations.iter().filter(|(key, g)| key.kind == Kind::BackendTLSPolicy && **g > 1);
        let mut changed = changed.peekable();
        if changed.peek().is_none() {
            return Some("no policy was changed".to_string());
        }
        changed.find_map(|(key, generation)| observed(self.status_of(key), *generation))
    }

    fn routes_accepted(&self, demand: &Value) -> Complaint {
        let of_set = demand["resource"]["groupkind"]["kind"] == "ListenerSet";
        let owner = if of_set { &demand["resource"] } else { &demand["gw"] };
        let gateway = self.status(if of_set { Kind::ListenerSet } else { Kind::KubernetesGateway }, owner);
        let good = [json!({"type": "Accepted", "status": "True"}), json!({"type": "Programmed", "status": "True"})];
        if let Some(why) = missing(&gateway["conditions"], &good) {
            return Some(why);
        }
        if !of_set && list(&gateway["addresses"]).next().is_none() {
            return Some(format!("no address: {gateway}"));
        }
        let kind = text(&demand["routeType"]).trim_end_matches("Route").to_string();
        list(&demand["routeNNs"]).find_map(|named| {
            let one = json!({"gwNN": owner, "routeNN": named});
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
                let (is, wanted_ref) = (&p["parentRef"], &wanted["parentRef"]);
                let same = |key: &str| is[key].is_null() || wanted_ref[key].is_null() || is[key] == wanted_ref[key];
                same("name")
                    && same("namespace")
                    && same("sectionName")
                    && same("port")
                    && missing(&p["conditions"], &conditions).is_none()
            })
        };
        wanted.iter().find(|w| !held(w)).map(|w| format!("wanted {w}: {status}"))
    }
}

/// Every condition of a status is of this generation.
fn observed(status: &Value, generation: i64) -> Complaint {
    let lists = ["parents", "listeners", "ancestors"];
    let owners = [status].into_iter().chain(lists.into_iter().flat_map(|of| list(&status[of])));
    let mut conditions = owners.flat_map(|o| list(&o["conditions"])).peekable();
    if generation == 0 || conditions.peek().is_none() {
        return Some(format!("nothing was observed: {status}"));
    }
    let old = conditions.find(|c| c["observedGeneration"].as_i64() != Some(generation));
    old.map(|c| format!("not of generation {generation}: {c}"))
}

fn key_of(kind: Kind, named: &Value) -> ConfigKey {
    ConfigKey { kind, namespace: text(&named["namespace"]).into(), name: text(&named["name"]).into() }
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

/// The inputs of the translation of these objects of a cluster.
pub fn inputs_of(documents: &[Value]) -> PushInputs {
    let (configs, _) = environment::configs(documents, "", "default", false);
    let mesh = Mesh::from_values(&Value::Null, &Value::Null, "cluster.local", "Kubernetes").unwrap();
    let (mesh, features) = (Arc::new(mesh), Arc::new(Features::default()));
    let configs = ConfigSnapshot::of(configs);
    let registry = ServiceEntryStore::of(mesh.clone(), features.clone(), &configs).snapshot();
    PushInputs { mesh, features, configs, registry, ..PushInputs::default() }
}
