//! xDS updates for changes of ServiceEntries and WorkloadEntries: Istio's tables at HEAD.

use super::*;

#[test]
fn a_new_service_entry_is_pushed_with_its_endpoints() {
    let mut bench = Bench::new();
    let got = bench.put(entry("a", &["*.google.com"], "STATIC", &["2.2.2.2", "3.3.3.3"]));
    assert_eq!(got, ["eds *.google.com 2 Full", "svc *.google.com Add", "xds *.google.com (service)"]);
}

#[test]
fn two_entries_of_one_host_offer_the_union() {
    let mut bench = Bench::new();
    let first = entry("a", &["h"], "STATIC", &["2.2.2.2"]);
    let second = entry("b", &["h"], "STATIC", &["3.3.3.3"]);
    bench.put(first.clone());
    assert_eq!(bench.put(second.clone()), ["eds h 2 Incremental", "svc h Add", "xds h (service)"]);
    let more = entry("b", &["h"], "STATIC", &["3.3.3.3", "4.4.4.4"]);
    assert_eq!(bench.put(more), ["eds h 3 Incremental"]);
    assert_eq!(bench.endpoints("h"), ["2.2.2.2:80", "3.3.3.3:80", "4.4.4.4:80"]);
    assert_eq!(bench.delete(&second), ["eds h 1 Incremental", "xds h (service)"]);
    assert_eq!(bench.delete(&first), ["svc h Delete", "eds h 0 Incremental", "xds h (service)"]);
    assert!(bench.snapshot().endpoints.by_service.is_empty());
}

#[test]
fn an_update_that_changes_nothing_means_nothing() {
    let mut bench = Bench::new();
    let document = entry("a", &["h"], "STATIC", &["2.2.2.2"]);
    bench.put(document.clone());
    let mut annotated = document;
    annotated["metadata"]["annotations"] = json!({"note": "x"});
    assert!(bench.put(annotated).is_empty());
}

#[test]
fn only_the_host_that_came_or_went_is_pushed() {
    let mut bench = Bench::new();
    bench.put(entry("a", &["h"], "STATIC", &["2.2.2.2"]));
    let both = entry("a", &["h", "other"], "STATIC", &["2.2.2.2"]);
    assert_eq!(bench.put(both), ["eds other 1 Full", "svc other Add", "xds other (service)"]);
    let one = entry("a", &["h"], "STATIC", &["2.2.2.2"]);
    assert_eq!(bench.put(one), ["svc other Delete", "eds other 0 Incremental", "xds other (service)"]);
}

#[test]
fn endpoints_of_dns_stand_in_the_cluster() {
    let mut bench = Bench::new();
    bench.put(entry("a", &["h"], "DNS", &["x.example", "y.example"]));
    let got = bench.put(entry("a", &["h"], "DNS", &["x.example"]));
    assert_eq!(got, ["eds h 1 Incremental", "xds h (endpoint)"]);
}

#[test]
fn a_target_port_is_part_of_the_service() {
    let mut bench = Bench::new();
    let mut document = entry("a", &["h"], "STATIC", &["2.2.2.2"]);
    bench.put(document.clone());
    document["spec"]["ports"][0]["targetPort"] = json!(8080);
    assert_eq!(bench.put(document), ["eds h 1 Incremental", "svc h Update", "xds h (service)"]);
}

#[test]
fn workload_entries_come_and_go_as_endpoints() {
    let mut bench = Bench::new();
    let got = bench.put(selecting("a", "h", "STATIC", "wle"));
    assert_eq!(got, ["eds h 0 Incremental", "svc h Add", "xds h (service)"]);
    let (first, second) = (workload("w1", "2.2.2.2", "wle"), workload("w2", "3.3.3.3", "wle"));
    assert_eq!(bench.put(first.clone()), ["proxy 2.2.2.2", "eds h 1 Full"]);
    assert_eq!(bench.put(second.clone()), ["proxy 3.3.3.3", "eds h 2 Incremental"]);
    assert_eq!(bench.delete(&second), ["eds h 1 Incremental"]);
    assert_eq!(bench.put(workload("w1", "2.2.2.2", "other")), ["proxy 2.2.2.2", "eds h 0 Incremental"]);
    assert!(bench.delete(&first).is_empty());
}

#[test]
fn a_workload_entry_of_a_dns_entry_is_pushed_with_the_cluster() {
    let mut bench = Bench::new();
    bench.put(selecting("a", "h", "DNS", "wle"));
    let got = bench.put(workload("w", "w.example", "wle"));
    assert_eq!(got, ["proxy w.example", "eds h 1 Full", "xds h (endpoint)"]);
}

#[test]
fn a_workload_entry_with_a_name_is_no_endpoint_of_a_static_entry() {
    let mut bench = Bench::new();
    bench.put(selecting("a", "h", "STATIC", "wle"));
    assert_eq!(bench.put(workload("w", "w.example", "wle")), ["proxy w.example"]);
}

#[test]
fn a_changed_selector_changes_the_service() {
    let mut bench = Bench::new();
    bench.put(selecting("a", "h", "STATIC", "x"));
    bench.put(workload("w", "2.2.2.2", "wle"));
    let got = bench.put(selecting("a", "h", "STATIC", "wle"));
    assert_eq!(got, ["eds h 1 Full", "svc h Update", "xds h (service)"]);
}

#[test]
fn an_entry_in_another_namespace_is_another_service() {
    let mut bench = Bench::new();
    bench.put(entry("a", &["h"], "STATIC", &["2.2.2.2"]));
    let mut elsewhere = entry("a", &["h"], "STATIC", &["3.3.3.3"]);
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    assert_eq!(bench.put(elsewhere), ["eds h 1 Full", "svc h Add", "xds h (service)"]);
    assert_eq!(bench.endpoints("h"), ["2.2.2.2:80"]);
}

#[test]
fn a_workload_serves_the_entries_that_select_it() {
    let mut bench = Bench::new();
    bench.put(selecting("a", "h", "STATIC", "wle"));
    bench.put(workload("w", "2.2.2.2", "wle"));
    let snapshot = bench.snapshot();
    let targets = snapshot.targets_of(&node("vm", "2.2.2.2"));
    assert_eq!(targets.iter().map(|t| (&*t.service.hostname, t.target_port)).collect::<Vec<_>>(), [("h", 80)]);
    let labels = snapshot.workload_of(&node("vm", "2.2.2.2")).unwrap().labels;
    assert_eq!(labels.get("app").map(String::as_str), Some("wle"));
    assert!(snapshot.targets_of(&node("vm", "9.9.9.9")).is_empty());
}

#[test]
fn round_robin_dns_keeps_one_endpoint_per_port() {
    let mut bench = Bench::new();
    bench.put(entry("a", &["h"], "DNS_ROUND_ROBIN", &["x.example"]));
    bench.put(entry("b", &["h"], "DNS_ROUND_ROBIN", &["y.example"]));
    assert_eq!(bench.endpoints("h"), ["x.example:80"]);
}

#[test]
fn a_snapshot_shares_unchanged_parts() {
    let mut bench = Bench::new();
    bench.put(entry("a", &["h"], "STATIC", &["2.2.2.2"]));
    bench.put(entry("b", &["i"], "STATIC", &["3.3.3.3"]));
    let before = bench.snapshot();
    bench.put(entry("a", &["h"], "STATIC", &["2.2.2.2", "4.4.4.4"]));
    let after = bench.snapshot();
    assert!(Arc::ptr_eq(&before.services, &after.services));
    let of = |s: &RegistrySnapshot, host: &str| s.endpoints.get(&host.into(), &"ns".into()).cloned().unwrap();
    assert!(Arc::ptr_eq(&of(&before, "i"), &of(&after, "i")));
    assert!(!Arc::ptr_eq(&of(&before, "h"), &of(&after, "h")));
    assert!(Arc::ptr_eq(&after.endpoints, &bench.snapshot().endpoints));
}
