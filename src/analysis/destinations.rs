//! The destinations of a VirtualService, each with the path of its field.

use crate::proto::networking::{Destination, VirtualService};

/// The reserved name of the mesh among gateways.
pub(super) const MESH: &str = "mesh";

/// A destination with the path of its field and the words for it.
pub(super) struct Named<'a> {
    pub destination: &'a Destination,
    /// Path of the destination.
    pub path: String,
    pub is_mirror: bool,
}

/// All destinations of a VirtualService.
pub(super) fn destinations(service: &VirtualService) -> Vec<Named<'_>> {
    let mut found = Vec::new();
    for (i, http) in service.http.iter().enumerate() {
        let routed = http.route.iter().enumerate().filter_map(|(j, route)| {
            Some((route.destination.as_ref()?, format!("spec.http[{i}].route[{j}].destination"), false))
        });
        let mirror = http.mirror.iter().map(|mirror| (mirror, format!("spec.http[{i}].mirror"), true));
        let mirrors = http.mirrors.iter().enumerate().filter_map(|(j, mirror)| {
            Some((mirror.destination.as_ref()?, format!("spec.http[{i}].mirrors[{j}].destination"), true))
        });
        found.extend(routed.chain(mirror).chain(mirrors));
    }
    let tcp = service.tcp.iter().map(|rule| &rule.route).enumerate().map(|(i, route)| ("tcp", i, route));
    let tls = service.tls.iter().map(|rule| &rule.route).enumerate().map(|(i, route)| ("tls", i, route));
    for (family, i, route) in tcp.chain(tls) {
        found.extend(route.iter().enumerate().filter_map(|(j, route)| {
            Some((route.destination.as_ref()?, format!("spec.{family}[{i}].route[{j}].destination"), false))
        }));
    }
    found.into_iter().map(|(destination, path, is_mirror)| Named { destination, path, is_mirror }).collect()
}
