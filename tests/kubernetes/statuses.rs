//! The status of each kind in the real API server: as the kind's own API defines it, once, and without loss of others'
//! fields.

use serde_json::{Value, json};

use crate::{
    real::{Admin, documents, everything},
    running::end,
    status::{addresses, condition, start, until},
    versions::Versions,
};

const OBJECTS: &str = include_str!("statuses.yaml");

/// An object of the file, as the server has it.
struct Objects(Vec<Value>);

impl Objects {
    fn one(&self, kind: &str, name: &str) -> &Value {
        self.0.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name).unwrap()
    }

    fn gateway(&self) -> &Value {
        let of_gateway_api = |o: &&Value| o["kind"] == "Gateway" && o["spec"]["gatewayClassName"].is_string();
        self.0.iter().find(of_gateway_api).unwrap()
    }
}

async fn objects(admin: &Admin) -> Objects {
    let all = documents(OBJECTS);
    for object in &all {
        admin.apply_soon(object).await;
    }
    let objects = Objects(all);
    let given = |ip: &str| json!({"loadBalancer": {"ingress": [{"ip": ip}]}});
    admin.set_status(objects.one("Service", "edge-istio"), given("203.0.113.9")).await;
    admin.set_status(objects.one("Service", "istio-ingressgateway"), given("203.0.113.10")).await;
    objects
}

fn says(object: &Value, condition_type: &str, status: &str) -> bool {
    let condition = condition(object, condition_type);
    condition["status"] == status && condition["observedGeneration"] == object["metadata"]["generation"]
}

fn parents(route: &Value) -> Vec<Value> {
    let status = route["status"]["parents"].as_array().cloned().unwrap_or_default();
    status.into_iter().map(|p| json!({"status": p})).collect()
}

fn attached(gateway: &Value) -> Vec<(String, i64)> {
    let listeners = gateway["status"]["listeners"].as_array().into_iter().flatten();
    let row = |l: &Value| (l["name"].as_str().unwrap().to_string(), l["attachedRoutes"].as_i64().unwrap());
    listeners.map(row).collect()
}

#[actix::test]
async fn every_kind_has_the_status_that_its_api_defines() {
    let Some((server, admin)) = everything().await else { return };
    let objects = objects(&admin).await;
    let gateway = objects.gateway();
    let (good, bad) = (objects.one("HTTPRoute", "web"), objects.one("HTTPRoute", "lost"));
    let theirs = json!({"parents": [{"controllerName": "example.com/other", "parentRef": {"name": "elsewhere"},
        "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "ours",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]});
    admin.set_status(good, theirs.clone()).await;
    let running = start(&server.kubeconfig).await;

    let class = until(&admin, objects.one("GatewayClass", "istio"), |o| says(o, "Accepted", "True")).await;
    assert_eq!(condition(&class, "Accepted")["reason"], "Accepted");

    let edge =
        until(&admin, gateway, |o| addresses(o) == ["203.0.113.9"] && attached(o).iter().all(|l| l.1 == 1)).await;
    assert!(says(&edge, "Accepted", "True") && says(&edge, "Programmed", "True"), "{edge:#}");
    assert_eq!(edge["status"]["addresses"][0]["type"], "IPAddress");
    assert_eq!(attached(&edge), [("http".to_string(), 1)]);
    let listener = json!({"status": edge["status"]["listeners"][0], "metadata": edge["metadata"]});
    for kind in ["Accepted", "Programmed", "ResolvedRefs"] {
        assert!(says(&listener, kind, "True"), "{kind}: {edge:#}");
    }
    let kinds = edge["status"]["listeners"][0]["supportedKinds"].as_array().unwrap();
    assert!(kinds.iter().any(|k| k["kind"] == "HTTPRoute"), "{edge:#}");

    let web = until(&admin, good, |o| parents(o).len() == 2).await;
    let mine = |o: &Value| parents(o).into_iter().find(|p| p["status"]["parentRef"]["name"] == "edge").unwrap();
    for kind in ["Accepted", "ResolvedRefs"] {
        assert_eq!(condition(&mine(&web), kind)["status"], "True", "{web:#}");
        assert_eq!(condition(&mine(&web), kind)["observedGeneration"], 1);
    }
    let other = parents(&web).into_iter().find(|p| p["status"]["controllerName"] == "example.com/other").unwrap();
    assert_eq!(
        other["status"]["conditions"], theirs["parents"][0]["conditions"],
        "another controller's stays as it is"
    );
    let lost = until(&admin, bad, |o| parents(o).len() == 1).await;
    let why = condition(&mine(&lost), "ResolvedRefs").clone();
    assert_eq!((&why["status"], &why["reason"]), (&json!("False"), &json!("BackendNotFound")), "{lost:#}");

    let ingress = objects.one("Ingress", "shop");
    let ingress = until(&admin, ingress, |o| !o["status"]["loadBalancer"]["ingress"].is_null()).await;
    assert_eq!(ingress["status"]["loadBalancer"]["ingress"], json!([{"ip": "203.0.113.10"}]));

    let entry = until(&admin, objects.one("ServiceEntry", "payments"), |o| {
        addresses(o).len() == 2 && says(o, "Reconciled", "True")
    })
    .await;
    assert_eq!(entry["status"]["addresses"][0]["host"], "payments.example");
    until(&admin, objects.one("VirtualService", "payments"), |o| says(o, "Reconciled", "True")).await;
    until(&admin, objects.one("DestinationRule", "payments"), |o| says(o, "Reconciled", "True")).await;
    end(running).await;
}

#[actix::test]
async fn statuses_follow_their_objects_and_settle() {
    let Some((server, admin)) = everything().await else { return };
    let objects = objects(&admin).await;
    let gateway = objects.gateway();
    let running = start(&server.kubeconfig).await;
    until(&admin, gateway, |o| attached(o) == [("http".to_string(), 1)]).await;
    until(&admin, objects.one("Ingress", "shop"), |o| !o["status"]["loadBalancer"]["ingress"].is_null()).await;
    let versions = Versions::follow(&admin, gateway).await;

    let mut second = gateway.clone();
    second["spec"]["listeners"].as_array_mut().unwrap().push(json!(
        {"name": "other", "port": 8081, "protocol": "HTTP", "hostname": "other.example"}));
    admin.apply(&second).await;
    let mut route = objects.one("HTTPRoute", "lost").clone();
    route["spec"]["parentRefs"] = json!([{"name": "edge", "sectionName": "other"}]);
    route["spec"]["hostnames"] = json!(["other.example"]);
    admin.apply(&route).await;
    let wanted = [("http".to_string(), 1), ("other".to_string(), 1)];
    let edge = until(&admin, gateway, |o| attached(o) == wanted).await;
    assert!(says(&edge, "Accepted", "True"), "{edge:#}");

    // A new address reaches the Gateway and nothing else of it moves.
    let balancer = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.77"}]}});
    admin.set_status(objects.one("Service", "edge-istio"), balancer).await;
    let moved = until(&admin, gateway, |o| addresses(o) == ["203.0.113.77"]).await;
    assert_eq!(condition(&moved, "Accepted"), condition(&edge, "Accepted"), "nothing turned, so no time moved");

    // A label is no reason to write, and is the last thing that comes: everything was written by then.
    let mut labelled = second.clone();
    labelled["metadata"]["labels"] = json!({"touched": "yes"});
    admin.apply(&labelled).await;
    let mark = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": "mark", "namespace": "shop"}, "spec": {"hosts": ["mark.example"], "resolution": "DNS",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}]}});
    admin.apply(&mark).await;
    until(&admin, &mark, |o| addresses(o).len() == 2).await;
    let last = admin.get(gateway).await;
    versions.until(&last).await;
    let seen = versions.of("edge");
    assert_eq!(seen.last().unwrap()["status"], last["status"]);
    let writes = seen.windows(2).filter(|pair| pair[0]["status"] != pair[1]["status"]).count();
    let equal = seen.windows(2).filter(|p| p[0]["status"] == p[1]["status"]).count();
    assert!(writes <= 5, "{writes} writes: {seen:#?}");
    assert!(equal <= 1, "only the label changed nothing of the status: {seen:#?}");
    end(running).await;
}
