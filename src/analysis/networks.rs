//! Networks of the mesh: registries that no cluster has.

use std::collections::BTreeSet;

use super::{
    code::Code,
    message::{Report, Subject},
    world::World,
};
use crate::{model::Kind, proto::mesh::network::network_endpoints::Ne};

/// Names of registries that every mesh has.
const BUILT_IN: [&str; 3] = ["Mock", "Kubernetes", "External"];

/// The label of a Secret with the access to another cluster.
const REMOTE: &str = "istio/multiCluster";

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    let mut known: BTreeSet<&str> = BTreeSet::from(BUILT_IN);
    known.insert(&world.mesh().cluster_id);
    for (_, config) in world.list(Kind::Secret) {
        let is_remote = config.meta.labels.get(REMOTE).is_some_and(|value| value == "true");
        let Some(secret) = config.secret().filter(|_| is_remote) else { continue };
        known.extend(secret.data.iter().flatten().map(|(cluster, _)| cluster.as_str()));
        known.extend(secret.string_data.iter().flatten().map(|(cluster, _)| cluster.as_str()));
    }
    known.extend(world.objects.iter().filter_map(|o| o.config()).map(|c| &*c.origin.cluster));
    for (name, network) in &world.mesh().networks.networks {
        for (i, endpoint) in network.endpoints.iter().enumerate() {
            let Some(Ne::FromRegistry(registry)) = &endpoint.ne else { continue };
            if !known.contains(registry.as_str()) {
                let text = format!("Unknown service registry {registry} in network {name}");
                let path = format!("networks.{name}.endpoints[{i}].fromRegistry");
                report.about(Code::UnknownMeshNetworksServiceRegistry, Subject::MeshNetworks, path, text);
            }
        }
    }
}
