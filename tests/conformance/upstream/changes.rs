//! The changes that tests make while they run. The recording has the demands before and after, but not the change: that is told here,
//! by test and by the words of the case.

use serde_json::{Value, json};

use super::text;

/// The manifests of a test, as they change.
pub struct Changing {
    test: String,
    /// The manifests that all tests rest on.
    base: Vec<Value>,
    own: Vec<Value>,
    steps: usize,
}

impl Changing {
    pub fn new(test: &Value, base: Vec<Value>, own: Vec<Value>) -> Self {
        let mut changing = Self { test: text(&test["shortName"]).to_string(), base, own, steps: 0 };
        for document in changing.base.iter_mut().chain(&mut changing.own) {
            document["metadata"]["generation"] = 1.into();
        }
        changing
    }

    /// All manifests as they are now.
    pub fn documents(&self) -> Vec<Value> {
        self.base.iter().chain(&self.own).cloned().collect()
    }

    /// Makes the change that comes before this demand, if there is one.
    pub fn before(&mut self, demand: &Value) -> bool {
        let (case, check) = (text(&demand["case"]), text(&demand["check"]));
        let wanted = |reason: &str| demand["expectedCondition"]["reason"] == reason;
        let test = self.test.clone();
        if case.contains("after") && case.contains("delet") && case.to_lowercase().contains("grant") {
            return self.once(1, |own| own.retain(|d| d["kind"] != "ReferenceGrant"));
        }
        match &*test {
            "GatewayModifyListeners" if case.contains("add a listener") => self.once(1, |own| {
                let added = json!({"name": "http", "port": 80, "protocol": "HTTP",
                    "allowedRoutes": {"namespaces": {"from": "All"}}});
                change(own, "gateway-add-listener", |gateway| push(&mut gateway["spec"]["listeners"], added.clone()));
            }),
            "GatewayModifyListeners" => self.once(2, |own| {
                change(own, "gateway-remove-listener", |gateway| {
                    gateway["spec"]["listeners"].as_array_mut().unwrap().retain(|l| l["name"] != "https");
                });
            }),
            "GatewayStaticAddresses" if wanted("Accepted") => self.once(1, |own| keep_addresses(own, 1)),
            "GatewayStaticAddresses" if wanted("Programmed") => self.once(2, |own| keep_addresses(own, 2)),
            "GatewayStaticAddresses" => self.once(0, |own| name_addresses(own)),
            "TCPRouteMultipleRoutesAttachment" if check != "routesAccepted" => self.once(1, newer_route),
            name => {
                let Some(kind) = name.strip_suffix("ObservedGenerationBump") else { return false };
                self.once(1, |own| {
                    let of_kind = own.iter().filter(|d| d["kind"] == kind).map(|d| text(&d["metadata"]["name"]));
                    let bumped = of_kind.filter(|name| name.ends_with("generation-bump")).map(String::from);
                    for name in Vec::from_iter(bumped) {
                        change(own, &name, |document| say_something_else(kind, document));
                    }
                })
            }
        }
    }

    /// Makes a change unless it, or a later one, was made.
    fn once(&mut self, step: usize, make: impl FnOnce(&mut Vec<Value>)) -> bool {
        if self.steps > step {
            return false;
        }
        self.steps = step + 1;
        make(&mut self.own);
        true
    }
}

fn push(list: &mut Value, item: Value) {
    list.as_array_mut().unwrap().push(item);
}

fn change(own: &mut [Value], name: &str, make: impl Fn(&mut Value)) {
    for document in own.iter_mut().filter(|d| d["metadata"]["name"] == name && d["kind"] != "Namespace") {
        make(document);
        document["metadata"]["generation"] = (document["metadata"]["generation"].as_i64().unwrap_or(1) + 1).into();
    }
}

/// Any change that an API server counts as one.
fn say_something_else(kind: &str, document: &mut Value) {
    let spec = &mut document["spec"];
    match kind {
        "Gateway" => push(&mut spec["listeners"], json!({"name": "alternate", "port": 8080, "protocol": "HTTP"})),
        "GatewayClass" => spec["description"] = "new".into(),
        "BackendTLSPolicy" => spec["validation"]["hostname"] = "other.example.com".into(),
        "HTTPRoute" => spec["rules"][0]["backendRefs"][0]["name"] = "infra-backend-v2".into(),
        _ => {}
    }
}

/// The suite puts addresses of the implementation's choice in; these are those of Istio's own run.
fn name_addresses(own: &mut [Value]) {
    change(own, "gateway-static-addresses", |gateway| {
        for (index, host) in [(1, "foo"), (2, "infra-backend-v1.gateway-conformance-infra.svc.cluster.local")] {
            gateway["spec"]["addresses"][index] = json!({"type": "Hostname", "value": host});
        }
    });
}

/// Takes the first addresses of the three away.
fn keep_addresses(own: &mut [Value], from: usize) {
    change(own, "gateway-static-addresses", |gateway| {
        let addresses = gateway["spec"]["addresses"].as_array_mut().unwrap();
        let gone = addresses.len().saturating_sub(3 - from);
        addresses.drain(..gone);
    });
}

/// A second route, younger than the first one.
fn newer_route(own: &mut Vec<Value>) {
    let Some(older) = own.iter_mut().find(|d| d["kind"] == "TCPRoute") else { return };
    older["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z".into();
    let mut newer = older.clone();
    newer["metadata"]["name"] = "tcproute-attach-newer".into();
    newer["metadata"]["creationTimestamp"] = "2025-01-01T00:00:10Z".into();
    newer["spec"]["rules"][0]["backendRefs"][0]["name"] = "tcp-attach-backend-2".into();
    own.push(newer);
}
