//! Patches of clusters (Istio's `cluster_patch.go`).

use std::{collections::HashSet, hash::Hash, sync::Arc};

use xxhash_rust::xxh3::Xxh3Default;

use super::{Patching, fitting, is_merge, matching, merge};
use crate::{
    generate::check,
    proto::{
        envoy::config::{
            cluster::v3::Cluster,
            core::v3::{TransportSocket, transport_socket::ConfigType},
        },
        networking::envoy_filter::{ApplyTo, patch::Operation},
        wkt,
    },
    push::envoy_filters::Patch,
};

impl Patching<'_> {
    /// A hash of the patches that are for a cluster; `None` where there are none.
    #[must_use]
    pub fn cluster_key(&self, name: &str) -> Option<u128> {
        let mut hasher = Xxh3Default::new();
        let mut found = false;
        for patch in self.patches(ApplyTo::Cluster).filter(|p| p.operation != Operation::Add) {
            if matching::cluster(patch, name, &[]) {
                found = true;
                patch.identity().hash(&mut hasher);
            }
        }
        found.then(|| hasher.digest128())
    }

    /// A cluster with its patches, as far as Envoy takes the result; `None` for one that is removed. `hosts` are the services
    /// behind an inbound cluster.
    #[must_use]
    pub fn cluster(&mut self, cluster: Cluster, hosts: &[&str]) -> Option<Cluster> {
        self.encoded_cluster(cluster, hosts).map(|(cluster, _)| cluster)
    }

    /// The same with the bytes of the result, where Envoy is known to take it.
    #[must_use]
    pub fn encoded_cluster(&mut self, cluster: Cluster, hosts: &[&str]) -> Option<(Cluster, Option<Vec<u8>>)> {
        let name = cluster.name.clone();
        let fit = |cluster: &Cluster| match cluster.name == name {
            true => fit(cluster),
            false => Err("the name of the cluster is another".to_string()),
        };
        fitting(self, format_args!("cluster {name}"), cluster, |p, cluster| patched(p, cluster, hosts), fit)
    }

    /// Clusters that are added to the others. Names are unique: the first cluster of a name stays.
    #[must_use]
    pub fn added_clusters<'n>(&mut self, taken: impl Iterator<Item = &'n str>) -> Vec<Cluster> {
        let additions: Vec<Arc<Patch>> =
            self.patches(ApplyTo::Cluster).filter(|patch| self.adds_here(patch)).cloned().collect();
        if additions.is_empty() {
            return Vec::new();
        }
        let mut taken: HashSet<String> = taken.map(str::to_string).collect();
        let mut added = Vec::new();
        for patch in additions {
            let cluster: Cluster = patch.value.as_ref().map(|value| value.decoded()).unwrap_or_default();
            let name = format!("cluster {}", cluster.name);
            self.begin();
            let result = match fit(&cluster).map(drop) {
                Ok(()) if taken.contains(&cluster.name) || self.is_of_other_side(ApplyTo::Cluster, &cluster.name) => {
                    Err("there is a cluster of that name".to_string())
                }
                result => result,
            };
            if result.is_ok() {
                taken.insert(cluster.name.clone());
                added.push(cluster);
            }
            self.done(&patch, &name, result);
            self.keep();
        }
        added
    }
}

/// The bytes of a cluster that Envoy takes.
fn fit(cluster: &Cluster) -> Result<Vec<u8>, String> {
    check::encoded(cluster).map_err(|found| check::reasons(&found))
}

/// The clusters that are added, whether Envoy takes them or not.
#[must_use]
pub fn all_added(patching: &Patching<'_>) -> Vec<Cluster> {
    let added = patching.patches(ApplyTo::Cluster).filter(|patch| patching.adds_here(patch));
    added.filter_map(|patch| Some(patch.value.as_ref()?.decoded())).collect()
}

/// The patched cluster, whether Envoy takes it or not.
#[must_use]
pub fn patched(patching: &Patching<'_>, mut cluster: Cluster, hosts: &[&str]) -> Option<Cluster> {
    for patch in patching.patches(ApplyTo::Cluster) {
        if patch.operation == Operation::Add || !matching::cluster(patch, &cluster.name, hosts) {
            continue;
        }
        if patch.operation == Operation::Remove {
            patching.applied(patch);
            return None;
        }
        if is_merge(patch.operation) {
            let result = with_socket(&mut cluster, patch)
                .and_then(|done| if done { Ok(()) } else { merge::patch(&mut cluster, patch) });
            patching.done(patch, format_args!("cluster {}", cluster.name), result);
        }
    }
    Some(cluster)
}

/// Merges a transport socket into the one of that name, deeply, or puts it in the place of another. `true` where the patch has
/// one: then it changes nothing else, as in Istio.
fn with_socket(cluster: &mut Cluster, patch: &Patch) -> Result<bool, String> {
    let Some(value) = patch.value.as_ref().filter(|value| value.has_socket) else { return Ok(false) };
    let Some(given) = value.decoded::<Cluster>().transport_socket else { return Ok(false) };
    if !cluster.transport_socket_matches.is_empty() {
        let sockets = cluster.transport_socket_matches.iter_mut().filter_map(|m| m.transport_socket.as_mut());
        // A cluster has one transport socket or several with matches, not both.
        let Some(own) = sockets.into_iter().find(|socket| socket.name == given.name) else {
            return Err(format!("the cluster chooses among transport sockets, and none is called {:?}", given.name));
        };
        merge_socket(own, &given)?;
        return Ok(true);
    }
    match cluster.transport_socket.as_mut().filter(|own| own.name == given.name) {
        Some(own) => merge_socket(own, &given)?,
        None => cluster.transport_socket = Some(given),
    }
    Ok(true)
}

fn configuration(socket: &TransportSocket) -> Option<&wkt::Any> {
    match socket.config_type.as_ref()? {
        ConfigType::TypedConfig(any) => Some(any),
    }
}

/// Merges the configuration of a transport socket into that of another.
pub(super) fn merge_socket(own: &mut TransportSocket, given: &TransportSocket) -> Result<(), String> {
    if let (Some(into), Some(from)) = (configuration(own), configuration(given)) {
        own.config_type = Some(ConfigType::TypedConfig(merge::any(into, from)?));
    }
    Ok(())
}
