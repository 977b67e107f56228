//! The endpoint index by service and shard, and the push that each update requires (Istio's `EndpointIndex`).
//!
//! A service keeps its entry when its last endpoint is removed, until the service itself is deleted. The entry keeps no service
//! accounts: an identity is trusted only while an endpoint has it, so that the content for proxies follows from the existing
//! objects alone. Istio keeps the accounts of a service scaled to zero until its process ends.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::EndpointPush;
use crate::model::{Endpoint, EndpointIndex, EndpointSet, HealthStatus, Hostname, ShardKey};

/// The endpoint index, copied on write, so that published snapshots do not change.
#[derive(Debug, Default)]
pub struct EndpointShards {
    index: Arc<EndpointIndex>,
}

impl EndpointShards {
    /// The current index.
    pub fn snapshot(&self) -> Arc<EndpointIndex> {
        self.index.clone()
    }

    /// Replaces the endpoints of a service in one shard (`UpdateServiceEndpoints`).
    pub fn update(
        &mut self,
        shard: &ShardKey,
        host: &Hostname,
        namespace: &Arc<str>,
        endpoints: &[Arc<Endpoint>],
    ) -> EndpointPush {
        let key = (host.clone(), namespace.clone());
        let old = self.index.by_service.get(&key);
        if endpoints.is_empty() {
            let Some(old) = old.filter(|o| o.shards.iter().any(|(key, _)| key == shard)) else {
                return EndpointPush::Incremental;
            };
            let set = EndpointSet::of(old.shards_with(shard, None).0);
            let same = old.service_accounts == set.service_accounts;
            self.put(key, set);
            return if same { EndpointPush::Incremental } else { EndpointPush::Full };
        }
        let (shards, before) = match old {
            Some(old) => old.shards_with(shard, Some(endpoints.into())),
            None => (vec![(shard.clone(), endpoints.into())], None),
        };
        let set = EndpointSet::of(shards);
        let push = match old {
            None => EndpointPush::Full,
            Some(old) if old.service_accounts != set.service_accounts => EndpointPush::Full,
            Some(_) if visible_change(before.as_deref(), endpoints) => EndpointPush::Incremental,
            Some(_) => EndpointPush::NoPush,
        };
        if old.is_none_or(|o| o.stamp != set.stamp) {
            self.put(key, set);
        }
        push
    }

    /// Removes a service from a shard (`DeleteServiceShard`); the entry is removed with its last shard.
    pub fn delete(&mut self, shard: &ShardKey, host: &Hostname, namespace: &Arc<str>) {
        let key = (host.clone(), namespace.clone());
        let Some(old) = self.index.by_service.get(&key) else { return };
        let (shards, _) = old.shards_with(shard, None);
        if shards.is_empty() {
            Arc::make_mut(&mut self.index).by_service.remove(&key);
        } else if shards.len() != old.shards.len() {
            self.put(key, EndpointSet::of(shards));
        }
    }

    fn put(&mut self, key: (Hostname, Arc<str>), set: EndpointSet) {
        Arc::make_mut(&mut self.index).by_service.insert(key, Arc::new(set));
    }
}

/// Whether proxies see a difference: an endpoint changed or was removed, or a new one may get traffic. A new endpoint that is
/// not ready is stored and pushed with the next change.
fn visible_change(old: Option<&[Arc<Endpoint>]>, new: &[Arc<Endpoint>]) -> bool {
    let Some(old) = old else { return true };
    let before: HashMap<_, _> = old.iter().map(|e| (identity(e), e)).collect();
    let changed = new.iter().any(|e| match before.get(&identity(e)) {
        Some(known) => *known != e,
        None => e.health != HealthStatus::UnHealthy || e.send_unhealthy,
    });
    let now: BTreeSet<_> = new.iter().map(|e| identity(e)).collect();
    changed || old.iter().any(|e| !now.contains(&identity(e)))
}

fn identity(endpoint: &Endpoint) -> (&str, &str, &str, &str) {
    let address = endpoint.addresses.first().map_or("", |a| &**a);
    (&endpoint.namespace, &endpoint.workload_name, address, &endpoint.service_port_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Registry;

    fn endpoint(address: &str, account: &str, health: HealthStatus) -> Arc<Endpoint> {
        Arc::new(Endpoint {
            addresses: vec![address.into()],
            service_account: account.into(),
            health,
            ..Endpoint::default()
        })
    }

    fn healthy(address: &str, account: &str) -> Arc<Endpoint> {
        endpoint(address, account, HealthStatus::Healthy)
    }

    fn shard(cluster: &str) -> ShardKey {
        ShardKey { provider: Registry::Kubernetes, cluster: cluster.into() }
    }

    fn names() -> (Hostname, Arc<str>) {
        ("a.example".into(), "ns".into())
    }

    #[test]
    fn one_to_none_to_one_pushes_the_service_too_where_endpoints_have_accounts() {
        let (mut shards, (host, ns), c1) = (EndpointShards::default(), names(), shard("c1"));
        let mut put = |list: &[Arc<Endpoint>]| shards.update(&c1, &host, &ns, list);
        assert_eq!(put(&[healthy("1.1.1.1", "sa1")]), EndpointPush::Full);
        assert_eq!(put(&[]), EndpointPush::Full);
        assert_eq!(put(&[]), EndpointPush::Incremental);
        assert_eq!(put(&[healthy("1.1.1.1", "")]), EndpointPush::Incremental);
        assert_eq!(put(&[]), EndpointPush::Incremental);
        assert_eq!(put(&[healthy("1.1.1.1", "sa2")]), EndpointPush::Full);
    }

    #[test]
    fn accounts_are_compared_over_all_shards() {
        let (mut shards, (host, ns)) = (EndpointShards::default(), names());
        assert_eq!(shards.update(&shard("c1"), &host, &ns, &[healthy("1.1.1.1", "sa1")]), EndpointPush::Full);
        assert_eq!(shards.update(&shard("c2"), &host, &ns, &[healthy("2.2.2.2", "sa2")]), EndpointPush::Full);
        assert_eq!(shards.update(&shard("c1"), &host, &ns, &[healthy("1.1.1.2", "sa1")]), EndpointPush::Incremental);
        let set = shards.snapshot().get(&host, &ns).cloned().unwrap();
        assert_eq!(set.service_accounts.len(), 2);
        shards.delete(&shard("c1"), &host, &ns);
        shards.delete(&shard("c2"), &host, &ns);
        assert!(shards.snapshot().get(&host, &ns).is_none());
    }

    #[test]
    fn a_new_unready_endpoint_is_stored_without_a_push() {
        let (mut shards, (host, ns), c1) = (EndpointShards::default(), names(), shard("c1"));
        let (a, b) = (healthy("1.1.1.1", ""), endpoint("1.1.1.2", "", HealthStatus::UnHealthy));
        let mut put = |list: &[Arc<Endpoint>]| shards.update(&c1, &host, &ns, list);
        assert_eq!(put(std::slice::from_ref(&a)), EndpointPush::Full);
        assert_eq!(put(std::slice::from_ref(&a)), EndpointPush::NoPush);
        assert_eq!(put(&[a.clone(), b]), EndpointPush::NoPush);
        assert_eq!(put(&[a.clone(), healthy("1.1.1.2", "")]), EndpointPush::Incremental);
        assert_eq!(put(&[a]), EndpointPush::Incremental);
        assert_eq!(shards.snapshot().get(&host, &ns).map(|s| s.iter().count()), Some(1));
    }

    #[test]
    fn a_snapshot_does_not_change_and_shares_unchanged_shards() {
        let (mut shards, (host, ns), c1) = (EndpointShards::default(), names(), shard("c1"));
        shards.update(&c1, &host, &ns, &[healthy("1.1.1.1", "")]);
        shards.update(&c1, &"b.example".into(), &ns, &[healthy("1.1.1.1", "")]);
        let before = shards.snapshot();
        shards.update(&c1, &host, &ns, &[healthy("1.1.1.2", "")]);
        let after = shards.snapshot();
        let set = |index: &EndpointIndex, host: &str| index.get(&host.into(), &ns).cloned().unwrap();
        assert!(!Arc::ptr_eq(&set(&before, "a.example"), &set(&after, "a.example")));
        assert!(Arc::ptr_eq(&set(&before, "b.example"), &set(&after, "b.example")));
    }
}
