//! Addresses for ServiceEntries that have none, as they are written into the status (Istio's IP allocator).
//!
//! Both families for each host, next free from the start of the range; a wildcard host gets one only where names are
//! resolved on demand (`DYNAMIC_DNS`). Addresses in a status stay; of two entries that claim one address the older keeps it,
//! and an address that a user wrote is given to no other entry. An entry that no longer needs addresses has its own cleared.
//! Assignments are remembered until the status shows them, so that a slow write changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
    sync::Arc,
};

use serde_json::{Value, json};

use crate::{
    model::{Config, ConfigKey, Features, Kind, host},
    proto::networking::{ServiceEntry, service_entry::Resolution},
};

const OPT_OUT: &str = "networking.istio.io/enable-autoallocate-ip";
/// Addresses of a range of IPv6 that are ever looked at: more than can be asked for.
const MOST_V6: u128 = u32::MAX as u128;

/// The addresses that may be handed out: those of the prefixes, but not the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges {
    v4: RangeInclusive<u32>,
    v6: RangeInclusive<u128>,
}

impl Ranges {
    /// The ranges of the flags.
    pub fn of(features: &Features) -> Self {
        let (v4, v6) = (features.ip_autoallocate_ipv4_prefix.0, features.ip_autoallocate_ipv6_prefix.0);
        let first: u128 = u128::from(v6.addr()).saturating_add(1);
        Self {
            v4: u32::from(v4.addr()).saturating_add(1)..=v4.broadcast().into(),
            v6: first..=u128::from(v6.broadcast()).min(first.saturating_add(MOST_V6)),
        }
    }
}

/// Addresses of one entry, by host in the order of its hosts.
type Hosts = Vec<(Arc<str>, Vec<IpAddr>)>;

/// Addresses of all entries that need some, and of those that have some and need none.
#[derive(Debug, Clone, Default)]
pub struct AddressClaims {
    by_entry: BTreeMap<ConfigKey, Hosts>,
    /// Start of the search for the next address.
    next: Option<(u32, u128)>,
}

impl AddressClaims {
    /// `status.addresses` of every entry that has or needs addresses.
    pub fn addresses(&self) -> impl Iterator<Item = (&ConfigKey, Value)> {
        self.by_entry.iter().map(|(key, hosts)| {
            let each = hosts.iter().flat_map(|(host, ips)| ips.iter().map(move |ip| (host, ip)));
            (key, each.map(|(host, ip)| json!({"value": ip.to_string(), "host": &**host})).collect())
        })
    }

    /// Looks at all ServiceEntries again, oldest first; `ours` says whose status we write.
    pub fn look(&mut self, entries: &[Arc<Config>], ranges: &Ranges, ours: impl Fn(&Config) -> bool) {
        let mut used = users_own(entries);
        let before = std::mem::take(&mut self.by_entry);
        let mut wanting = Vec::new();
        for config in entries.iter().filter(|c| c.is_of_main_cluster()) {
            let Some(entry) = config.service_entry() else { continue };
            let key = config.key();
            let held = of_status(config);
            if !needs(config, &entry) {
                if !held.is_empty() && ours(config) {
                    self.by_entry.insert(key, Vec::new());
                }
                continue;
            }
            let claim = |host: &str| claimed(held.get(host), &mut used);
            let ips: Vec<Vec<IpAddr>> = kept_hosts(&entry).into_iter().map(claim).collect();
            if ours(config) {
                let hosts = kept_hosts(&entry).into_iter().map(Into::into);
                wanting.push((key, hosts.zip(ips).collect::<Hosts>()));
            }
        }
        // An unwritten assignment yields to an address in a status, which another process may have written.
        for (key, hosts) in &mut wanting {
            let handed_out = before.get(key);
            for (host, ips) in hosts.iter_mut().filter(|(_, ips)| ips.is_empty()) {
                let remembered = handed_out.and_then(|h| h.iter().find(|(n, _)| n == host)).map(|(_, ips)| ips);
                *ips = claimed(remembered, &mut used);
            }
        }
        for (key, mut hosts) in wanting {
            for (_, ips) in hosts.iter_mut().filter(|(_, ips)| ips.is_empty()) {
                ips.extend(self.allocate(ranges, &mut used));
            }
            self.by_entry.insert(key, hosts);
        }
    }

    /// The next free address of each family, as far as there are any.
    fn allocate(&mut self, ranges: &Ranges, used: &mut BTreeSet<IpAddr>) -> Vec<IpAddr> {
        let (first4, last4) = ranges.v4.clone().into_inner();
        let (first6, last6) = ranges.v6.clone().into_inner();
        let (v4, v6) = self.next.unwrap_or((first4, first6));
        let free4 = |n: &u32| !used.contains(&IpAddr::V4(Ipv4Addr::from(*n)));
        let free6 = |n: &u128| !used.contains(&IpAddr::V6(Ipv6Addr::from(*n)));
        let found4 = (v4..=last4).chain(first4..v4).find(free4);
        let found6 = (v6..=last6).chain(first6..v6).find(free6);
        let after4 = found4.map_or(v4, |n| if n < last4 { n + 1 } else { first4 });
        let after6 = found6.map_or(v6, |n| if n < last6 { n + 1 } else { first6 });
        self.next = Some((after4, after6));
        let v4 = found4.map(|n| IpAddr::V4(Ipv4Addr::from(n)));
        let ips: Vec<IpAddr> = v4.into_iter().chain(found6.map(|n| IpAddr::V6(Ipv6Addr::from(n)))).collect();
        used.extend(&ips);
        ips
    }
}

/// These addresses, now in use, if they are free.
fn claimed(ips: Option<&Vec<IpAddr>>, used: &mut BTreeSet<IpAddr>) -> Vec<IpAddr> {
    let free = ips.filter(|ips| !ips.is_empty() && ips.iter().all(|ip| !used.contains(ip)));
    let ips = free.cloned().unwrap_or_default();
    used.extend(&ips);
    ips
}

/// Hosts that get an address, each once.
fn kept_hosts(entry: &ServiceEntry) -> Vec<&str> {
    let dynamic = entry.resolution() == Resolution::DynamicDns;
    let mut seen = BTreeSet::new();
    let hosts = entry.hosts.iter().map(String::as_str).filter(|h| dynamic || !host::is_wildcard(h));
    hosts.filter(|h| seen.insert(*h)).collect()
}

fn needs(config: &Config, entry: &ServiceEntry) -> bool {
    let opted_out = config.meta.labels.get(OPT_OUT).is_some_and(|v| v.eq_ignore_ascii_case("false"));
    entry.resolution() != Resolution::None && entry.addresses.is_empty() && !opted_out
}

fn users_own(entries: &[Arc<Config>]) -> BTreeSet<IpAddr> {
    let all = entries.iter().filter(|c| c.kind() == Kind::ServiceEntry).filter_map(|c| c.service_entry());
    all.flat_map(|e| e.addresses).filter_map(|a| a.parse().ok()).collect()
}

fn of_status(config: &Config) -> HashMap<&str, Vec<IpAddr>> {
    let mut held: HashMap<&str, Vec<IpAddr>> = HashMap::new();
    for claim in config.status["addresses"].as_array().into_iter().flatten() {
        let ip = claim["value"].as_str().and_then(|v| v.parse().ok());
        if let (Some(host), Some(ip)) = (claim["host"].as_str(), ip) {
            held.entry(host).or_default().push(ip);
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Origin, decode};

    fn entry(name: &str, spec: Value, status: Value) -> Arc<Config> {
        let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
            "metadata": {"name": name, "namespace": "shop"}, "spec": spec, "status": status});
        Arc::new(decode::from_value(&document, Origin::default()).unwrap())
    }

    fn claimed(claims: &AddressClaims) -> Vec<String> {
        let lists = claims.addresses().flat_map(|(key, list)| {
            let list = list.as_array().cloned().unwrap_or_default();
            list.into_iter().map(|a| format!("{} {} {}", key.name, a["host"], a["value"])).collect::<Vec<_>>()
        });
        lists.map(|text| text.replace('"', "")).collect()
    }

    fn ranges() -> Ranges {
        Ranges::of(&Features::default())
    }

    #[test]
    fn addresses_come_from_the_prefixes_and_end_with_them() {
        let mut features = Features::default();
        features.set("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", "10.9.0.0/30").unwrap();
        features.set("PILOT_IP_AUTOALLOCATE_IPV6_PREFIX", "fd00:1::/64").unwrap();
        let entries: Vec<_> = (0..4)
            .map(|n| {
                entry(&n.to_string(), json!({"hosts": [format!("{n}.example")], "resolution": "DNS"}), Value::Null)
            })
            .collect();
        let mut claims = AddressClaims::default();
        claims.look(&entries, &Ranges::of(&features), |_| true);
        let addresses: Vec<_> = claimed(&claims).iter().map(|c| c.rsplit(' ').next().unwrap().to_string()).collect();
        let want = ["10.9.0.1", "fd00:1::1", "10.9.0.2", "fd00:1::2", "10.9.0.3", "fd00:1::3", "fd00:1::4"];
        assert_eq!(addresses, want, "the last entry gets the remaining address");
    }

    #[test]
    fn both_families_for_each_host_and_stable_before_and_after_the_write() {
        let mut claims = AddressClaims::default();
        let a = entry("a", json!({"hosts": ["x.example", "*.example"], "resolution": "DNS"}), Value::Null);
        claims.look(std::slice::from_ref(&a), &ranges(), |_| true);
        let first = ["a x.example 240.240.0.1", "a x.example 2001:2::1"];
        assert_eq!(claimed(&claims), first);
        let older = entry("0", json!({"hosts": ["y.example"], "resolution": "STATIC"}), Value::Null);
        claims.look(&[older.clone(), a.clone()], &ranges(), |_| true);
        assert_eq!(claimed(&claims)[2..], first, "an assigned address stays before it is written");
        let status = json!({"addresses": [{"host": "x.example", "value": "240.240.0.9"}]});
        let written = entry("a", json!({"hosts": ["x.example"], "resolution": "DNS"}), status);
        claims.look(&[older, written], &ranges(), |_| true);
        assert_eq!(claimed(&claims)[2..], ["a x.example 240.240.0.9"]);
    }

    #[test]
    fn of_two_claims_the_older_keeps_the_address_and_a_users_own_wins() {
        let status = |ip: &str| json!({"addresses": [{"host": "x.example", "value": ip}]});
        let spec = json!({"hosts": ["x.example"], "resolution": "DNS"});
        let mut claims = AddressClaims::default();
        let (a, b) = (entry("a", spec.clone(), status("240.240.0.5")), entry("b", spec.clone(), status("240.240.0.5")));
        claims.look(&[a, b], &ranges(), |_| true);
        assert_eq!(claimed(&claims), ["a x.example 240.240.0.5", "b x.example 240.240.0.1", "b x.example 2001:2::1"]);
        let own = entry("own", json!({"hosts": ["z.example"], "addresses": ["240.240.0.7"]}), Value::Null);
        claims.look(&[entry("a", spec, status("240.240.0.7")), own], &ranges(), |_| true);
        assert!(!claimed(&claims).iter().any(|c| c.ends_with("240.240.0.7")), "{:?}", claimed(&claims));
    }

    #[test]
    fn entries_without_need_are_cleared_and_others_entries_are_left_alone() {
        let status = json!({"addresses": [{"host": "x.example", "value": "240.240.0.5"}]});
        let none = entry("n", json!({"hosts": ["x.example"], "resolution": "NONE"}), status.clone());
        let mut claims = AddressClaims::default();
        claims.look(std::slice::from_ref(&none), &ranges(), |_| true);
        assert_eq!(claims.addresses().map(|(_, v)| v).collect::<Vec<_>>(), [json!([])]);
        claims.look(&[none], &ranges(), |_| false);
        assert_eq!(claims.addresses().count(), 0);
        let theirs = entry("t", json!({"hosts": ["x.example"], "resolution": "DNS"}), status);
        let mine = entry("m", json!({"hosts": ["q.example"], "resolution": "DNS"}), Value::Null);
        claims.look(&[theirs, mine], &ranges(), |c| &*c.meta.name == "m");
        assert_eq!(claims.addresses().count(), 1);
    }
}
