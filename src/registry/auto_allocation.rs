//! Virtual addresses for ServiceEntry services without addresses, allocated by hash: a key gets the same address in every
//! process (Istio's `autoAllocateIPs`). Active when `PILOT_ENABLE_IP_AUTOALLOCATE` is off; otherwise addresses come from the
//! status.

use std::{collections::HashMap, sync::Arc};

use crate::model::{Hostname, Registry, Resolution, Service, host, service::UNSPECIFIED_IP};

const SLOTS: u32 = 256 * 254;
const PRIME: u32 = 65011;

/// Third and fourth octet of an address in 240.240.0.0/16.
type Octets = (u32, u32);

/// Allocates an address for each eligible service: one without address or wildcard host that is not passthrough. Services with
/// one key take a slot each and share the address of the first. Of two keys with the same slot the first one in key order gets
/// it, so the order of the list does not matter.
pub fn allocate(services: &mut [Arc<Service>]) {
    let mut keys: Vec<_> = services.iter().filter(|s| eligible(s)).map(|s| s.key()).collect();
    keys.sort_by(|(h, n), (i, m)| (n, h).cmp(&(m, i)));
    let by_key = addresses(keys);
    for service in services.iter_mut().filter(|s| eligible(s)) {
        let Some((third, fourth)) = by_key.get(&service.key()) else { continue };
        let mut changed = Service::clone(service);
        changed.auto_allocated_v4 = Some(format!("240.240.{third}.{fourth}"));
        changed.auto_allocated_v6 = Some(match third {
            0 => format!("2001:2::f0f0:{fourth:x}"),
            _ => format!("2001:2::f0f0:{third:x}{fourth:x}"),
        });
        *service = Arc::new(changed.stamped());
    }
}

fn eligible(service: &Service) -> bool {
    service.registry == Registry::External
        && service.default_address == UNSPECIFIED_IP
        && !host::is_wildcard(&service.hostname)
        && service.resolution != Resolution::Passthrough
}

fn addresses(keys: Vec<(Hostname, Arc<str>)>) -> HashMap<(Hostname, Arc<str>), Octets> {
    let mut slots: Vec<Option<(Hostname, Arc<str>)>> = vec![None; SLOTS as usize];
    for key in keys.into_iter().take(SLOTS as usize - 1) {
        if let Some(slot) = free_slot(&slots, &format!("{}/{}", key.1, key.0)) {
            slots[slot] = Some(key);
        }
    }
    let mut out = HashMap::new();
    let mut x = 0;
    for slot in slots {
        x += 1;
        let Some(key) = slot else { continue };
        // An occupied slot skips an address that ends in 0, which moves all later addresses by one.
        if x % 255 == 0 {
            x += 1;
        }
        out.entry(key).or_insert((x / 255, x % 255));
    }
    out
}

fn free_slot(slots: &[Option<(Hostname, Arc<str>)>], key: &str) -> Option<usize> {
    let hash = fnv1a(key.as_bytes());
    let first = (hash % SLOTS) as usize;
    if slots[first].is_none() {
        return Some(first);
    }
    let step = PRIME - hash % PRIME;
    (1..SLOTS)
        .map(|i| (hash.wrapping_add(i.wrapping_mul(step)) % (SLOTS - 1)) as usize)
        .find(|slot| slots[*slot].is_none())
}

fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, b| (hash ^ u32::from(*b)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(host: &str, address: &str) -> Arc<Service> {
        Arc::new(Service {
            hostname: host.into(),
            namespace: "ns".into(),
            default_address: address.into(),
            registry: Registry::External,
            ..Service::default()
        })
    }

    #[test]
    fn order_does_not_matter_and_addresses_are_distinct() {
        let mut a: Vec<_> = (0..3000).map(|n| service(&format!("h{n}.example"), UNSPECIFIED_IP)).collect();
        let mut b = a.clone();
        b.reverse();
        allocate(&mut a);
        allocate(&mut b);
        b.reverse();
        assert_eq!(a, b);
        let mut seen: Vec<_> = a.iter().filter_map(|s| s.auto_allocated_v4.clone()).collect();
        assert!(seen.iter().all(|ip| !ip.ends_with(".0") && !ip.ends_with(".255")));
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 3000);
    }

    #[test]
    fn two_services_of_one_key_share_an_address() {
        let mut one = Service::clone(&service("istio.io", UNSPECIFIED_IP));
        one.namespace = "default".into();
        let one = Arc::new(one);
        let mut list = vec![one.clone(), one];
        allocate(&mut list);
        assert!(list.iter().all(|s| s.auto_allocated_v4.as_deref() == Some("240.240.91.120")), "{list:?}");
    }

    #[test]
    fn services_with_an_address_or_a_wildcard_get_none() {
        let mut list = vec![service("a.example", "10.0.0.1"), service("*.example", UNSPECIFIED_IP)];
        allocate(&mut list);
        assert!(list.iter().all(|s| s.auto_allocated_v4.is_none()));
    }
}
