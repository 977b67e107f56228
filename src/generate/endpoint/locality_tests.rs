//! Priorities and weights by locality, on endpoints that only have a place, labels and a weight.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    generate::endpoint::group::Member,
    proto::{envoy::config::endpoint::v3::LbEndpoint, from_json},
};

fn member(weight: u32, labels: &[(&str, &str)]) -> Member {
    Member {
        labels: Arc::new(
            (&labels.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect::<Labels>()).into(),
        ),
        network: "".into(),
        cluster: "".into(),
        mtls: false,
        endpoint: LbEndpoint { load_balancing_weight: Some(weight), ..LbEndpoint::default() },
    }
}

fn group(locality: &str, weights: &[u32]) -> LocalityGroup {
    let members = weights.iter().map(|w| member(*w, &[])).collect();
    let mut group = LocalityGroup { locality: Locality::parse(locality), members, ..LocalityGroup::default() };
    group.refresh_weight();
    group
}

fn setting(value: serde_json::Value) -> LocalityLoadBalancerSetting {
    from_json(&value, true).unwrap()
}

fn place(locality: &str) -> ProxyLocality {
    ProxyLocality { locality: Locality::parse(locality), labels: Labels::new() }
}

fn priorities(groups: &[LocalityGroup]) -> Vec<(String, u32)> {
    groups.iter().map(|g| (g.locality.label(), g.priority)).collect()
}

#[test]
fn failover_goes_by_distance_and_leaves_no_gap() {
    let setting = setting(json!({"failover": [{"from": "a", "to": "c"}]}));
    let mut groups = ["a/1/x", "a/1/y", "a/2", "b/1", "c/1"].map(|l| group(l, &[1])).to_vec();
    LocalityLb::Locality(&setting).apply(&mut groups, &place("a/1/x"), true);
    assert_eq!(groups.iter().map(|g| g.priority).collect::<Vec<_>>(), [0, 1, 2, 4, 3]);
    let mut far = ["b/1", "d/1"].map(|l| group(l, &[1])).to_vec();
    LocalityLb::Locality(&setting).apply(&mut far, &place("a/1/x"), true);
    assert_eq!(far.iter().map(|g| g.priority).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn without_outlier_detection_nothing_fails_over() {
    let setting = setting(json!({}));
    let mut groups = ["a/1", "b/1"].map(|l| group(l, &[1])).to_vec();
    LocalityLb::Locality(&setting).apply(&mut groups, &place("a/1"), false);
    assert_eq!(groups.iter().map(|g| g.priority).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn distribute_shares_by_weight_and_drops_localities_without_a_rule() {
    let setting = setting(json!({"distribute": [
        {"from": "b/*", "to": {"b/1": 100}},
        {"from": "a/*", "to": {"a/*": 80, "b/1": 20}}]}));
    let mut groups = vec![group("a/1", &[1, 2]), group("a/2", &[1]), group("b/1", &[1]), group("b/2", &[1])];
    LocalityLb::Locality(&setting).apply(&mut groups, &place("a/1/x"), true);
    assert_eq!(groups.iter().map(|g| g.weight).collect::<Vec<_>>(), [Some(60), Some(20), Some(20), Some(1)]);
    assert!(groups[3].members.is_empty() && groups.iter().all(|g| g.priority == 0));
}

#[test]
fn labels_split_a_locality_by_the_first_that_differs() {
    let setting = setting(json!({"failoverPriority": ["zone", "rack=7"]}));
    let mut groups = vec![LocalityGroup {
        locality: Locality::parse("a"),
        members: vec![
            member(1, &[("zone", "z"), ("rack", "7")]),
            member(2, &[("zone", "z"), ("rack", "8")]),
            member(4, &[("zone", "y"), ("rack", "7")]),
        ],
        ..LocalityGroup::default()
    }];
    let labels = BTreeMap::from([("zone".to_string(), "z".to_string()), ("rack".to_string(), "1".to_string())]);
    let place = ProxyLocality { locality: Locality::default(), labels };
    LocalityLb::Locality(&setting).apply(&mut groups, &place, true);
    assert_eq!(
        groups.iter().map(|g| (g.priority, g.weight)).collect::<Vec<_>>(),
        [(0, Some(1)), (1, Some(2)), (2, Some(4))]
    );
}

#[test]
fn another_network_comes_after_everything_in_the_own_one() {
    let setting = LocalityLb::Prefer(&[NETWORK, REGION, ZONE]);
    let here = [(NETWORK, "n"), (REGION, "r"), (ZONE, "z")];
    let mut groups = vec![LocalityGroup {
        members: vec![
            member(1, &here),
            member(1, &[(NETWORK, "m"), (REGION, "r"), (ZONE, "z")]),
            member(1, &[(NETWORK, "n"), (REGION, "q"), (ZONE, "z")]),
        ],
        ..LocalityGroup::default()
    }];
    let labels = here.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
    setting.apply(&mut groups, &ProxyLocality { locality: Locality::default(), labels }, false);
    let order: Vec<_> =
        groups.iter().map(|g| g.members[0].labels.get(NETWORK).unwrap_or_default().to_string()).collect();
    assert_eq!(order, ["n", "n", "m"]);
    assert_eq!(groups.iter().map(|g| g.priority).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn zone_aware_keeps_the_region_together() {
    let setting: ZoneAwareLoadBalancerSetting =
        from_json(&json!({"failover": [{"from": "a", "to": "c"}]}), true).unwrap();
    let mut groups = ["a/1", "a/2", "b/1", "c/1"].map(|l| group(l, &[1])).to_vec();
    LocalityLb::ZoneAware(&setting).apply(&mut groups, &place("a/1"), false);
    assert_eq!(priorities(&groups).into_iter().map(|(_, p)| p).collect::<Vec<_>>(), [0, 0, 2, 1]);
}

#[test]
fn the_rule_beats_the_service_and_the_service_beats_the_mesh() {
    let mesh: MeshConfig = from_json(&json!({"localityLbSetting": {"enabled": true}}), true).unwrap();
    let off: LoadBalancerSettings = from_json(&json!({"localityLbSetting": {"enabled": false}}), true).unwrap();
    let close = Service { traffic_distribution: "PreferClose".to_string(), ..Service::default() };
    assert!(LocalityLb::effective(&mesh, Some(&off), &close).is_none());
    assert!(matches!(LocalityLb::effective(&mesh, None, &close), Some(LocalityLb::Prefer(_))));
    assert!(matches!(LocalityLb::effective(&mesh, None, &Service::default()), Some(LocalityLb::Locality(_))));
}

proptest! {
    #[test]
    fn priorities_are_dense_and_no_endpoint_is_lost(
        places in prop::collection::vec(("[ab]", "[12]", "[xy]"), 1..8),
        own in ("[ab]", "[12]", "[xy]"),
    ) {
        let text = |(r, z, s): &(String, String, String)| format!("{r}/{z}/{s}");
        let mut groups: Vec<LocalityGroup> = places.iter().map(|p| group(&text(p), &[1, 1])).collect();
        let setting = setting(json!({}));
        LocalityLb::Locality(&setting).apply(&mut groups, &place(&text(&own)), true);
        let mut used: Vec<u32> = groups.iter().map(|g| g.priority).collect();
        used.sort_unstable();
        used.dedup();
        prop_assert_eq!(used, (0..).take(groups.iter().map(|g| g.priority).max().unwrap_or(0) as usize + 1).collect::<Vec<u32>>());
        prop_assert_eq!(groups.iter().map(|g| g.members.len()).sum::<usize>(), places.len() * 2);
    }
}
