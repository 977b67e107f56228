//! Istio's public samples (bookinfo, httpbin, helloworld) through real Envoys: nothing is refused, and requests go where the
//! VirtualServices say. The samples lie beside the repository (`../shared/conformance/samples`, or `samples` in
//! `PILOTHOUSE_CONFORMANCE`); without them these tests say that they did not run.
//!
//! The files are used unchanged, except for the port numbers, which are exchanged for free ones of this machine, and for the
//! pods, whose place WorkloadEntries on the loopback interface take.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::{
    http::{Echo, get},
    mesh::{ControlPlane, Envoy},
    process::{free_port, wait_for},
    skipped::skipped,
};

const GATEWAY: &str = "router~127.0.0.1~edge.default~default.svc.cluster.local";
const SIDECAR: &str = "sidecar~10.0.0.1~client.default~default.svc.cluster.local";

fn samples() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance");
    let folder = env::var_os("PILOTHOUSE_CONFORMANCE").map_or(beside, PathBuf::from).join("samples");
    if !folder.is_dir() {
        skipped(&format!("there are no samples at {}", folder.display()));
        return None;
    }
    Some(folder)
}

/// A sample's text, with other port numbers.
fn sample(folder: &Path, file: &str, ports: &[(u16, u16)]) -> String {
    let mut text = fs::read_to_string(folder.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    for (old, new) in ports {
        for key in ["number", "port", "containerPort", "targetPort"] {
            text = text.replace(&format!("{key}: {old}\n"), &format!("{key}: {new}\n"));
        }
    }
    text
}

/// The workloads of an app, in place of its pods in a cluster.
fn workloads(app: &str, versions: &[&Echo]) -> String {
    versions
        .iter()
        .map(|echo| {
            let version = echo.name.rsplit('-').next().unwrap_or_default();
            let entry = json!({
                "apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "metadata": {"name": echo.name},
                "spec": {"address": "127.0.0.1", "ports": {"http": echo.port}, "labels": {"app": app, "version": version}},
            });
            format!("---\n{entry}\n")
        })
        .collect()
}

fn assert_nothing_refused(plane: &ControlPlane) {
    for source in plane.debug("/debug/sourcez").as_array().expect("a list of sources") {
        assert_eq!(source["findings"]["refused"], json!([]), "{source}");
    }
}

/// Bookinfo with its gateway and its destination rules, and a sidecar whose outbound listener is bound to the services' port.
struct Bookinfo {
    folder: PathBuf,
    ports: Vec<(u16, u16)>,
    plane: ControlPlane,
    gateway: Envoy,
    sidecar: Envoy,
    /// The pods' stand-ins live as long as the test.
    _pods: Vec<Echo>,
}

impl Bookinfo {
    fn start(folder: PathBuf) -> Self {
        let ports = vec![(8080, free_port()), (9080, free_port())];
        let pod = |name: &str| Echo::start(name);
        let apps = [
            ("productpage", vec![pod("productpage-v1")]),
            ("details", vec![pod("details-v1")]),
            ("ratings", vec![pod("ratings-v1"), pod("ratings-v2")]),
            ("reviews", vec![pod("reviews-v1"), pod("reviews-v2"), pod("reviews-v3")]),
        ];
        let pods: String = apps.iter().map(|(app, pods)| workloads(app, &pods.iter().collect::<Vec<_>>())).collect();
        let read = |file: &str| sample(&folder, &format!("bookinfo/{file}"), &ports);
        let plane = ControlPlane::start(&[
            ("services.yaml", read("platform/kube/bookinfo.yaml")),
            ("gateway.yaml", read("networking/bookinfo-gateway.yaml")),
            ("rules.yaml", read("networking/destination-rule-all.yaml")),
            ("routes.yaml", read("networking/virtual-service-all-v1.yaml")),
            ("pods.yaml", pods),
        ]);
        let gateway = Envoy::start(&plane, GATEWAY, &json!({"LABELS": {"istio": "ingressgateway"}}), true);
        let sidecar = Envoy::start(&plane, SIDECAR, &json!({"INTERCEPTION_MODE": "NONE"}), false);
        let pods = apps.into_iter().flat_map(|(_, pods)| pods).collect();
        Self { folder, ports, plane, gateway, sidecar, _pods: pods }
    }

    /// Puts another of the samples' route files in force.
    fn route(&self, file: &str) {
        self.plane.write("routes.yaml", &sample(&self.folder, &format!("bookinfo/networking/{file}"), &self.ports));
    }

    /// The workload that answers a request for `app` through the sidecar, or the status where it is not 200.
    fn asked(&self, app: &str, headers: &[(&str, &str)]) -> String {
        match get(self.ports[1].1, app, "/", headers) {
            Ok(answer) if answer.status == 200 => answer.seen("name"),
            Ok(answer) => answer.status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn shares(&self, app: &str, requests: u32) -> BTreeMap<String, u32> {
        let mut shares = BTreeMap::new();
        for _ in 0..requests {
            *shares.entry(self.asked(app, &[])).or_default() += 1;
        }
        shares
    }
}

#[test]
fn bookinfo_goes_where_its_virtual_services_say() {
    let Some(folder) = samples() else { return };
    let shop = Bookinfo::start(folder);
    let page = |path: &str| get(shop.ports[0].1, "bookinfo.example", path, &[]);
    let first = wait_for("the gateway answers", || page("/productpage").ok().filter(|a| a.status == 200));
    assert_eq!(first.seen("name"), "productpage-v1");
    assert_eq!(page("/admin").unwrap().status, 404);

    wait_for("the sidecar answers", || (shop.asked("reviews", &[]) == "reviews-v1").then_some(()));
    assert_eq!(shop.shares("reviews", 30), BTreeMap::from([("reviews-v1".to_string(), 30)]));
    assert_eq!(shop.asked("details", &[]), "details-v1");

    let jason = [("end-user", "jason")];
    shop.route("virtual-service-reviews-test-v2.yaml");
    wait_for("jason sees the second version", || (shop.asked("reviews", &jason) == "reviews-v2").then_some(()));
    assert_eq!(shop.asked("reviews", &[]), "reviews-v1");

    shop.route("virtual-service-reviews-50-v3.yaml");
    wait_for("the third version has a share", || (shop.asked("reviews", &[]) == "reviews-v3").then_some(()));
    let shares = shop.shares("reviews", 400);
    assert!((140..=260).contains(&shares["reviews-v1"]), "half of 400 is about 200: {shares:?}");
    assert_eq!(shares.keys().collect::<Vec<_>>(), ["reviews-v1", "reviews-v3"]);

    shop.route("virtual-service-ratings-test-abort.yaml");
    wait_for("jason is turned away", || (shop.asked("ratings", &jason) == "500").then_some(()));
    assert_eq!(shop.asked("ratings", &[]), "ratings-v1");

    assert_nothing_refused(&shop.plane);
    shop.gateway.assert_no_nacks();
    shop.sidecar.assert_no_nacks();
}

/// A sample of one service behind one gateway: these paths answer with these statuses.
fn one_service(app: &str, paths: &[(&str, u16)]) {
    let Some(folder) = samples() else { return };
    let (port, pod) = (free_port(), Echo::start(&format!("{app}-v1")));
    let ports = [(80, port)];
    let plane = ControlPlane::start(&[
        ("service.yaml", sample(&folder, &format!("{app}/{app}.yaml"), &[])),
        ("gateway.yaml", sample(&folder, &format!("{app}/{app}-gateway.yaml"), &ports)),
        ("pods.yaml", workloads(app, &[&pod])),
    ]);
    let envoy = Envoy::start(&plane, GATEWAY, &json!({"LABELS": {"istio": "ingressgateway"}}), false);
    for (path, status) in paths {
        let answer = wait_for("the gateway answers", || {
            get(port, "any.example", path, &[]).ok().filter(|a| a.status == *status)
        });
        if *status == 200 {
            assert_eq!((answer.seen("name"), answer.seen("path")), (format!("{app}-v1"), (*path).to_string()));
        }
    }
    assert_nothing_refused(&plane);
    envoy.assert_no_nacks();
}

#[test]
fn helloworld_answers_on_its_one_path() {
    one_service("helloworld", &[("/hello", 200), ("/", 404)]);
}

#[test]
fn httpbin_answers_on_every_path() {
    one_service("httpbin", &[("/status/200", 200), ("/anything", 200)]);
}
