//! The ConfigMaps of the authority in each namespace of the cluster, for pods that mount them (Istio's namespace controller):
//! `istio-ca-root-cert` with the roots and, where certificates are revoked, `istio-ca-crl` with the list.
//!
//! Every process of a mesh writes the same content and nothing that stands already, so none has to lead.

mod actor;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};

pub(super) use self::actor::{Readers, RootConfigMapsActor};
use crate::{
    identity::Authority,
    model::{Config, ConfigSnapshot, Kind, Mesh, namespaces::is_discovered},
    sources::{
        WriteError,
        kube::{CRL_MAP, KubeWriter, MapPlace, ROOT_CERT_MAP},
    },
};

/// The label of both.
const LABEL: (&str, &str) = ("istio.io/config", "true");
/// Namespaces of Kubernetes itself, which have no workloads of the mesh (Istio's `inject.IgnoredNamespaces`).
const IGNORED: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"];

/// Writes a ConfigMap of a namespace.
pub trait RootConfigMaps: Send + Sync {
    /// Puts this text into it.
    fn write(&self, namespace: &str, place: MapPlace, text: &str) -> BoxFuture<'static, Result<(), WriteError>>;
}

impl RootConfigMaps for KubeWriter {
    fn write(&self, namespace: &str, place: MapPlace, text: &str) -> BoxFuture<'static, Result<(), WriteError>> {
        let (writer, namespace, text) = (self.clone(), namespace.to_string(), text.to_string());
        async move { writer.apply_config_map(&namespace, &place, &[LABEL], &text).await }.boxed()
    }
}

/// The texts that each namespace holds. An empty list is not told; one that was told before stays, as in Istio.
fn texts(authority: &Authority) -> BTreeMap<MapPlace, Arc<str>> {
    let revoked = Some(authority.revoked()).filter(|list| !list.is_empty()).map(|list| (CRL_MAP, list.into()));
    [(ROOT_CERT_MAP, authority.roots().into())].into_iter().chain(revoked).collect()
}

/// A ConfigMap: its namespace and its place in it.
type Lacking = (Arc<str>, MapPlace);

/// ConfigMaps of the main cluster that are missing or hold another text.
fn lacking(configs: &ConfigSnapshot, mesh: &Mesh, texts: &BTreeMap<MapPlace, Arc<str>>) -> BTreeSet<Lacking> {
    let is_of_cluster = |object: &&Arc<Config>| object.origin.is_cluster() && object.origin.cluster.is_empty();
    let maps = configs.list(Kind::ConfigMap).iter().filter(is_of_cluster);
    let mut held: BTreeSet<(&str, MapPlace)> = BTreeSet::new();
    for map in maps {
        let Some((place, text)) = texts.iter().find(|(place, _)| *map.meta.name == *place.name) else { continue };
        let data = map.config_map().and_then(|map| map.data.as_ref());
        if data.and_then(|data| data.get(place.key)).is_some_and(|held| **held == **text) {
            held.insert((&map.meta.namespace, *place));
        }
    }
    let namespaces = configs.list(Kind::Namespace).iter().filter(is_of_cluster);
    namespaces
        .filter(|namespace| !IGNORED.contains(&&*namespace.meta.name))
        .filter(|namespace| is_discovered(&mesh.config, Some(&namespace.meta.labels)))
        .flat_map(|namespace| texts.keys().map(|place| (namespace.meta.name.clone(), *place)))
        .filter(|(namespace, place)| !held.contains(&(&**namespace, *place)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Origin, decode};

    fn object(value: &Value, source: &str, cluster: &str) -> Arc<Config> {
        let origin = Origin { source: source.into(), cluster: cluster.into(), ..Origin::default() };
        Arc::new(decode::from_value(value, origin).unwrap())
    }

    fn namespace(name: &str, source: &str, cluster: &str) -> Arc<Config> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        object(&namespace, source, cluster)
    }

    fn map(namespace: &str, place: MapPlace, text: &str) -> Arc<Config> {
        let metadata = json!({"name": place.name, "namespace": namespace});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {place.key: text}});
        object(&map, "kube:main", "")
    }

    #[test]
    fn each_namespace_of_the_cluster_lacks_a_text_until_it_holds_it() {
        let namespaces = vec![
            namespace("a", "kube:main", ""),
            namespace("b", "kube:main", ""),
            namespace("c", "kube:main", ""),
            namespace("kube-system", "kube:main", ""),
            namespace("of-a-file", "file:x", ""),
            namespace("of-a-remote", "kube:east", "east"),
        ];
        let maps = vec![map("b", ROOT_CERT_MAP, "ROOTS"), map("c", ROOT_CERT_MAP, "OLD"), map("c", CRL_MAP, "LIST")];
        let snapshot = ConfigSnapshot {
            by_kind: [(Kind::Namespace, namespaces.into()), (Kind::ConfigMap, maps.into())].into_iter().collect(),
        };
        let of = |texts: &[(MapPlace, &str)]| {
            let texts = texts.iter().map(|(place, text)| (*place, (*text).into())).collect();
            let all = lacking(&snapshot, &Mesh::default(), &texts);
            all.iter().map(|(namespace, place)| format!("{namespace}/{}", place.name)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[(ROOT_CERT_MAP, "ROOTS")]), ["a/istio-ca-root-cert", "c/istio-ca-root-cert"]);
        let with_list = of(&[(ROOT_CERT_MAP, "ROOTS"), (CRL_MAP, "LIST")]);
        assert_eq!(with_list, ["a/istio-ca-crl", "a/istio-ca-root-cert", "b/istio-ca-crl", "c/istio-ca-root-cert"]);
    }
}
