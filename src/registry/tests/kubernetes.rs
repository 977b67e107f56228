//! xDS updates for changes of Kubernetes objects, and the services of a Pod.

use super::*;

const HOST: &str = "s.ns.svc.cluster.local";

fn with_service(cluster_ip: &str) -> Bench {
    let mut bench = Bench::new();
    bench.put(pod("p1", "10.0.0.1", "s", true));
    bench.put(service("s", "s", cluster_ip));
    bench
}

#[test]
fn a_service_is_pushed_and_its_slices_are_endpoint_updates() {
    let mut bench = Bench::new();
    assert_eq!(bench.put(pod("p1", "10.0.0.1", "s", true)), ["proxy 10.0.0.1"]);
    let got = bench.put(service("s", "s", "10.96.0.1"));
    assert_eq!(got, [format!("svc {HOST} Add"), format!("xds {HOST} (service)")]);
    let one = slice("s-1", "s", &[("p1", "10.0.0.1")]);
    assert_eq!(bench.put(one.clone()), [format!("eds {HOST} 1 Full")]);
    assert!(bench.put(one.clone()).is_empty());
    assert_eq!(bench.delete(&one), [format!("eds {HOST} 0 Full")], "its accounts go too");
    bench.put(one);
    let got = bench.delete(&service("s", "s", "10.96.0.1"));
    assert_eq!(got, [format!("svc {HOST} Delete"), format!("xds {HOST} (service)")]);
    assert!(bench.snapshot().endpoints.by_service.is_empty());
}

#[test]
fn an_endpoints_object_counts_while_there_is_no_slice() {
    let mut bench = with_service("10.96.0.1");
    let subset = |ip: &str| json!({"addresses": [{"ip": ip}], "ports": [{"name": "http", "port": 1}]});
    let of = |subsets: Value| object("Endpoints", "s", json!({"subsets": subsets}));
    bench.put(of(json!([subset("1.1.1.1"), subset("2.2.2.2")])));
    assert_eq!(bench.endpoints(HOST), ["1.1.1.1:1", "2.2.2.2:1"]);
    bench.put(of(json!([subset("3.3.3.3")])));
    assert_eq!(bench.endpoints(HOST), ["3.3.3.3:1"]);
    bench.put(slice("s-1", "s", &[("p1", "10.0.0.1")]));
    assert_eq!(bench.endpoints(HOST), ["10.0.0.1:8080"]);
    bench.delete(&slice("s-1", "s", &[("p1", "10.0.0.1")]));
    bench.delete(&of(json!([subset("3.3.3.3")])));
    assert!(bench.endpoints(HOST).is_empty());
}

#[test]
fn an_endpoint_waits_for_its_pod() {
    let mut bench = with_service("10.96.0.1");
    bench.put(slice("s-1", "s", &[("p1", "10.0.0.1"), ("p2", "10.0.0.2")]));
    assert_eq!(bench.endpoints(HOST), ["10.0.0.1:8080"]);
    let got = bench.put(pod("p2", "10.0.0.2", "s", true));
    assert_eq!(got, ["proxy 10.0.0.2".to_string(), format!("eds {HOST} 2 Incremental")]);
}

#[test]
fn a_relabelled_pod_pushes_the_endpoints_of_its_services() {
    let mut bench = with_service("10.96.0.1");
    bench.put(slice("s-1", "s", &[("p1", "10.0.0.1")]));
    let got = bench.put(pod("p1", "10.0.0.1", "other", true));
    let wanted = ["proxy 10.0.0.1".to_string(), format!("cache {HOST} 1"), format!("xds endpoints {HOST} (endpoint)")];
    assert_eq!(got, wanted);
}

#[test]
fn endpoints_of_a_headless_service_change_names_or_listeners() {
    let mut bench = with_service("None");
    let got = bench.put(slice("s-1", "s", &[("p1", "10.0.0.1")]));
    assert_eq!(got, [format!("eds {HOST} 1 Full"), format!("xds dns {HOST} (headlessendpoint)")]);
    let mut tcp = service("s", "s", "None");
    tcp["spec"]["ports"][0]["name"] = json!("tcp");
    bench.put(tcp);
    let got = bench.delete(&slice("s-1", "s", &[("p1", "10.0.0.1")]));
    assert_eq!(got, [format!("eds {HOST} 0 Full"), format!("xds {HOST} (headlessendpoint)")]);
}

#[test]
fn a_service_without_visibility_is_not_pushed() {
    let mut bench = Bench::new();
    let mut hidden = service("s", "s", "10.96.0.1");
    hidden["metadata"]["annotations"] = json!({"networking.istio.io/exportTo": "~"});
    assert_eq!(bench.put(hidden), [format!("svc {HOST} Add")]);
}

#[test]
fn services_select_workload_entries_and_entries_select_pods() {
    let mut bench = with_service("10.96.0.1");
    let mut entry = workload("w", "2.2.2.2", "s");
    entry["spec"]["ports"] = json!({"web": 9090});
    assert_eq!(bench.put(entry), ["proxy 2.2.2.2".to_string(), format!("eds {HOST} 1 Full")]);
    assert_eq!(bench.endpoints(HOST), ["2.2.2.2:9090"]);
    let got = bench.put(selecting("e", "h", "STATIC", "s"));
    assert_eq!(got, ["eds h 2 Full", "svc h Add", "xds h (service)", "proxy 10.0.0.1"]);
    assert_eq!(bench.endpoints("h"), ["10.0.0.1:80", "2.2.2.2:80"]);
    let got = bench.put(pod("p1", "10.0.0.1", "s", false));
    assert_eq!(got, ["eds h 1 Full"]);
}

#[test]
fn a_pod_serves_the_services_that_select_it_at_their_target_ports() {
    let mut bench = with_service("10.96.0.1");
    let serves = |bench: &mut Bench, name: &str| -> Vec<(u32, u32)> {
        bench.snapshot().targets_of(&node(name, "10.0.0.1")).iter().map(|t| (t.port.port, t.target_port)).collect()
    };
    assert_eq!(serves(&mut bench, "p1"), [(80, 8080)]);
    assert_eq!(serves(&mut bench, "unknown"), []);
    let mut number = service("s", "s", "10.96.0.1");
    number["spec"]["ports"] =
        json!([{"name": "a", "port": 80, "targetPort": 1}, {"name": "b", "port": 81, "targetPort": 1}]);
    bench.put(number);
    assert_eq!(serves(&mut bench, "p1"), [(80, 1)]);
}

#[test]
fn a_pod_takes_its_locality_from_its_node() {
    let mut bench = with_service("10.96.0.1");
    bench.put(slice("s-1", "s", &[("p1", "10.0.0.1")]));
    let labels = json!({"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"});
    let got = bench.put(object("Node", "node", json!({"metadata": {"labels": labels}})));
    assert_eq!(got, ["proxy 10.0.0.1".to_string(), format!("eds {HOST} 1 Incremental")]);
    let snapshot = bench.snapshot();
    let set = snapshot.endpoints.get(&HOST.into(), &"ns".into()).unwrap();
    assert_eq!(set.iter().next().unwrap().locality.label(), "r/z");
    let workload = snapshot.workload_of(&node("p1", "10.0.0.1")).unwrap();
    assert_eq!(workload.locality.label(), "r/z");
    assert_eq!(workload.labels["topology.kubernetes.io/zone"], "z");
    assert!(!workload.labels.contains_key("kubernetes.io/hostname"), "the proxy's metadata names the node");
}

#[test]
fn a_service_of_two_clusters_is_one_with_both_addresses() {
    let mut bench = with_service("10.96.0.1");
    let origin = Origin { cluster: "west".into(), ..Origin::default() };
    let remote = from_value(&service("s", "s", "10.97.0.1"), origin).unwrap();
    let event = ConfigEvent { old: None, current: Arc::new(remote), kind: EventKind::Add };
    bench.apply(event);
    let snapshot = bench.snapshot();
    let [only] = snapshot.services.as_slice() else { panic!("{:?}", snapshot.services) };
    let vips: Vec<_> = only.cluster_vips.iter().map(|(c, v)| format!("{c}={}", v.join(","))).collect();
    assert_eq!(vips, ["Kubernetes=10.96.0.1", "west=10.97.0.1"]);
    assert_eq!(only.default_address, "10.96.0.1");
    assert!(Arc::ptr_eq(&snapshot.services, &bench.snapshot().services));
}
