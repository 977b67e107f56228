//! The state depends on the final objects alone: any order of events ends in the state of a cold build from the remaining
//! objects.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::model::{ConfigSnapshot, EndpointSet};

/// One of a few objects that refer to each other; `variant` changes its content.
fn any_object(which: usize, variant: usize) -> Value {
    let app = ["x", "y"][variant % 2];
    let distribution = ["PreferClose", ""][variant % 2];
    let ready = variant.is_multiple_of(3);
    match which {
        0 => entry("e0", &["h", "i"], ["STATIC", "DNS"][variant % 2], &["1.1.1.1", "2.2.2.2"][..variant % 3]),
        1 => entry("e1", &["h"], ["STATIC", "DNS_ROUND_ROBIN", "NONE"][variant % 3], &["3.3.3.3"]),
        2 => selecting("e2", ["h", "j"][variant % 2], "STATIC", app),
        3 => selecting("e3", "j", ["STATIC", "DNS"][variant / 2 % 2], app),
        4 => workload("w0", ["4.4.4.4", "w.example"][variant / 2 % 2], app),
        5 => workload("w1", "10.0.0.1", app),
        6 => pod("p0", "10.0.0.1", app, ready),
        7 => pod("p1", ["10.0.0.2", "10.0.0.1"][variant / 3 % 2], app, ready),
        8 => service("s0", app, ["10.96.0.1", "None", "10.96.0.2"][variant % 3]),
        9 => service("s1", "x", "10.96.0.3"),
        10 => slice("l0", ["s0", "s1"][variant % 2], &[("p0", "10.0.0.1"), ("p1", "10.0.0.2")][..1 + variant % 2]),
        11 => slice("l1", "s0", &[("p1", "10.0.0.2")]),
        12 => object("Node", "node", json!({"metadata": {"labels": {"topology.kubernetes.io/region": app}}})),
        13 => object(
            "Namespace",
            "ns",
            json!({"metadata": {"labels": {"env": app},
            "annotations": {"networking.istio.io/traffic-distribution": distribution}}}),
        ),
        _ => object("Namespace", "istio-system", json!({"metadata": {"labels": {"topology.istio.io/network": app}}})),
    }
}

const OBJECTS: usize = 15;

/// The visible content of a snapshot, as texts.
fn face(snapshot: &RegistrySnapshot) -> Vec<String> {
    let mut out: Vec<String> = snapshot.services.iter().map(|s| format!("{s:?}")).collect();
    let mut sets: Vec<_> = snapshot.endpoints.by_service.iter().filter(|(_, s)| s.iter().next().is_some()).collect();
    sets.sort_by(|a, b| a.0.cmp(b.0));
    out.extend(sets.iter().map(|(key, set)| format!("{key:?} {:?}", EndpointSet::of(set.shards.clone()))));
    for (name, ip) in [("p0", "10.0.0.1"), ("p1", "10.0.0.2"), ("w", "4.4.4.4"), ("v", "1.1.1.1")] {
        let node = node(name, ip);
        out.push(format!("{name} {:?} {:?}", snapshot.targets_of(&node), snapshot.workload_of(&node)));
    }
    out
}

fn cold(objects: &[Arc<Config>], mesh: &Arc<Mesh>) -> Vec<String> {
    let configs = ConfigSnapshot::of(objects.iter().cloned());
    face(&ServiceEntryStore::of(mesh.clone(), Arc::new(Features::default()), &configs).snapshot())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_order_of_events_ends_in_a_cold_build(
        steps in vec((0..OBJECTS, 0usize..6, prop::bool::weighted(0.25), any::<bool>()), 1..60),
        selective in any::<bool>(),
    ) {
        let settings = match selective {
            true => json!({"discoverySelectors": [{"matchLabels": {"env": "x"}}]}),
            false => Value::Null,
        };
        let mesh = Arc::new(Mesh::from_values(&settings, &Value::Null, "cluster.local", "Kubernetes").unwrap());
        let mut bench = Bench::new();
        bench.store = ServiceEntryStore::new(mesh.clone(), Arc::new(Features::default()));
        for (which, variant, delete, look) in steps {
            let document = any_object(which, variant);
            if delete { bench.delete(&document) } else { bench.put(document) };
            if look {
                let snapshot = bench.snapshot();
                prop_assert_eq!(face(&snapshot), cold(&bench.objects, &mesh));
            }
        }
        let snapshot = bench.snapshot();
        prop_assert_eq!(face(&snapshot), cold(&bench.objects, &mesh));
    }
}
