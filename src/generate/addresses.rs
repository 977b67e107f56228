//! The addresses of a service as one proxy sees them (Istio's `GetAddressForProxy`, `GetAllAddressesForProxy`): those of
//! its own cluster, of the families that it supports, else the auto-allocated ones, else the default.

use std::net::IpAddr;

use crate::{
    model::{Features, NodeType, Service, service::UNSPECIFIED_IP},
    push::ProxyView,
};

/// The first address of the service for the proxy; `0.0.0.0` when it has none.
#[must_use]
pub fn address(service: &Service, view: &ProxyView, features: &Features) -> String {
    if let Some(vip) = filter_families(cluster_vips(service, view), view).first() {
        return (*vip).clone();
    }
    if uses_auto_allocated(view, features) && service.default_address == UNSPECIFIED_IP {
        let v4 = service.auto_allocated_v4.as_ref().filter(|_| view.ipv4);
        let v6 = service.auto_allocated_v6.as_ref().filter(|_| view.ipv6);
        if let Some(address) = v4.or(v6) {
            return address.clone();
        }
    }
    service.default_address.clone()
}

/// All addresses of the service for the proxy, the first family only unless both are switched on. May hold `0.0.0.0`.
#[must_use]
pub fn all_addresses(service: &Service, view: &ProxyView, features: &Features) -> Vec<String> {
    let mut addresses: Vec<&String> = cluster_vips(service, view).iter().collect();
    if addresses.is_empty() && uses_auto_allocated(view, features) {
        addresses.extend(service.auto_allocated_v4.iter().chain(&service.auto_allocated_v6));
    }
    let both_families = (features.istio_dual_stack || features.enable_ambient) && view.is_dual_stack();
    if !both_families {
        addresses = filter_families(addresses, view);
    }
    if !addresses.is_empty() {
        return addresses.into_iter().cloned().collect();
    }
    default_address(service, &service.default_address, view)
}

/// The addresses that count when only a port of the service is looked at, as routes do: virtual IPs of the cluster, else
/// [`address`].
#[must_use]
pub fn route_addresses(service: &Service, view: &ProxyView, features: &Features) -> Vec<String> {
    let vips = cluster_vips(service, view);
    let both_families = (features.istio_dual_stack || features.enable_ambient) && view.is_dual_stack();
    let addresses = if both_families { vips.iter().collect() } else { filter_families(vips, view) };
    if !addresses.is_empty() {
        return addresses.into_iter().cloned().collect();
    }
    default_address(service, &address(service, view, features), view)
}

/// Whether the proxy gets the auto-allocated addresses (Istio's `nodeUsesAutoallocatedIPs`).
#[must_use]
pub fn uses_auto_allocated(view: &ProxyView, features: &Features) -> bool {
    (view.metadata.dns_auto_allocate || features.enable_ip_autoallocate)
        && (view.metadata.dns_capture || view.node_type == NodeType::Waypoint)
}

/// Keeps addresses and CIDRs of the families that the proxy supports; where both are, those of the first one's family.
#[must_use]
pub fn filter_families<'a>(addresses: impl IntoIterator<Item = &'a String>, view: &ProxyView) -> Vec<&'a String> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    let mut first = None;
    for (index, text) in addresses.into_iter().enumerate() {
        let Some(is_v4) = is_ipv4(text) else { continue };
        if index == 0 {
            first = Some(is_v4);
        }
        if is_v4 && view.ipv4 {
            v4.push(text);
        } else if !is_v4 && view.ipv6 {
            v6.push(text);
        }
    }
    match first {
        Some(true) if view.is_dual_stack() => v4,
        Some(false) if view.is_dual_stack() => v6,
        _ if v4.is_empty() => v6,
        _ => v4,
    }
}

fn is_ipv4(address: &str) -> Option<bool> {
    let ip = match address.contains('/') {
        true => address.parse::<ipnet::IpNet>().ok()?.addr(),
        false => address.parse::<IpAddr>().ok()?,
    };
    Some(ip.is_ipv4())
}

fn cluster_vips<'a>(service: &'a Service, view: &ProxyView) -> &'a [String] {
    if view.cluster_id.is_empty() {
        return &[];
    }
    service.cluster_vips.get(&view.cluster_id).map_or(&[], Vec::as_slice)
}

/// An address of another cluster is of use only in a family that the proxy supports; one that the user wrote always is.
fn default_address(service: &Service, address: &String, view: &ProxyView) -> Vec<String> {
    if address.is_empty() {
        return Vec::new();
    }
    if service.cluster_vips.is_empty() {
        return vec![address.clone()];
    }
    filter_families([address], view).into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Node;

    fn view(metadata: serde_json::Value) -> ProxyView {
        let node =
            Node::from_parts("sidecar~10.0.0.1~a.b~b.svc.cluster.local", metadata, crate::model::Locality::default());
        ProxyView::of_node(&node.unwrap())
    }

    fn service() -> Service {
        Service {
            hostname: "a.example".into(),
            default_address: UNSPECIFIED_IP.into(),
            auto_allocated_v4: Some("240.240.0.1".into()),
            auto_allocated_v6: Some("2001:2::1".into()),
            ..Default::default()
        }
    }

    #[test]
    fn auto_allocated_addresses_need_dns_capture() {
        let features = Features::default();
        let plain = view(serde_json::json!({"CLUSTER_ID": "c1"}));
        assert_eq!(all_addresses(&service(), &plain, &features), [UNSPECIFIED_IP]);
        let capture = view(serde_json::json!({"CLUSTER_ID": "c1", "DNS_CAPTURE": "true"}));
        assert_eq!(all_addresses(&service(), &capture, &features), ["240.240.0.1"]);
        assert_eq!(address(&service(), &capture, &features), "240.240.0.1");
    }

    #[test]
    fn own_cluster_comes_before_the_default() {
        let features = Features::default();
        let mut service = service();
        service.default_address = "10.1.0.1".into();
        service.cluster_vips = [("c1".into(), vec!["10.2.0.1".into(), "fd00::1".into()])].into();
        let own = view(serde_json::json!({"CLUSTER_ID": "c1"}));
        assert_eq!(all_addresses(&service, &own, &features), ["10.2.0.1"]);
        let other = view(serde_json::json!({"CLUSTER_ID": "c2"}));
        assert_eq!(route_addresses(&service, &other, &features), ["10.1.0.1"]);
    }
}
