//! The ConfigMap `istio-ca-root-cert` of each namespace of the cluster: the roots, for pods that mount it (Istio's namespace
//! controller).
//!
//! Every process of a mesh writes the same content and nothing that stands already, so none has to lead.

mod actor;

use std::{collections::BTreeMap, sync::Arc};

use futures::{FutureExt, future::BoxFuture};

pub(super) use self::actor::{Readers, RootConfigMapsActor};
use crate::{
    model::{Config, ConfigSnapshot, Kind, Mesh, namespaces::is_discovered},
    sources::{WriteError, kube::KubeWriter},
};

/// Name of the ConfigMap.
const NAME: &str = "istio-ca-root-cert";
/// Key of the roots in it.
const KEY: &str = "root-cert.pem";
/// Its label.
const LABEL: (&str, &str) = ("istio.io/config", "true");
/// Namespaces of Kubernetes itself, which have no workloads of the mesh (Istio's `inject.IgnoredNamespaces`).
const IGNORED: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"];

/// Writes the ConfigMap of a namespace.
pub trait RootConfigMaps: Send + Sync {
    /// Puts these roots into it.
    fn write(&self, namespace: &str, roots: &str) -> BoxFuture<'static, Result<(), WriteError>>;
}

impl RootConfigMaps for KubeWriter {
    fn write(&self, namespace: &str, roots: &str) -> BoxFuture<'static, Result<(), WriteError>> {
        let (writer, namespace, roots) = (self.clone(), namespace.to_string(), roots.to_string());
        async move { writer.apply_config_map(&namespace, NAME, &[LABEL], &[(KEY, &roots)]).await }.boxed()
    }
}

/// Namespaces of the main cluster whose ConfigMap is missing or holds other roots.
fn lacking(configs: &ConfigSnapshot, mesh: &Mesh, roots: &str) -> Vec<Arc<str>> {
    let is_of_cluster = |object: &&Arc<Config>| object.origin.is_cluster() && object.origin.cluster.is_empty();
    let held: BTreeMap<&str, &Arc<Config>> = configs
        .list(Kind::ConfigMap)
        .iter()
        .filter(is_of_cluster)
        .filter(|map| &*map.meta.name == NAME)
        .map(|map| (&*map.meta.namespace, map))
        .collect();
    let holds = |namespace: &str| {
        let data = held.get(namespace).and_then(|map| map.config_map()).and_then(|map| map.data.as_ref());
        data.and_then(|data| data.get(KEY)).is_some_and(|text| text == roots)
    };
    let namespaces = configs.list(Kind::Namespace).iter().filter(is_of_cluster);
    namespaces
        .filter(|namespace| !IGNORED.contains(&&*namespace.meta.name))
        .filter(|namespace| is_discovered(&mesh.config, Some(&namespace.meta.labels)))
        .filter(|namespace| !holds(&namespace.meta.name))
        .map(|namespace| namespace.meta.name.clone())
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

    fn map(namespace: &str, roots: &str) -> Arc<Config> {
        let metadata = json!({"name": NAME, "namespace": namespace});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: roots}});
        object(&map, "kube:main", "")
    }

    #[test]
    fn each_namespace_of_the_cluster_lacks_the_roots_until_it_holds_them() {
        let namespaces = vec![
            namespace("a", "kube:main", ""),
            namespace("b", "kube:main", ""),
            namespace("c", "kube:main", ""),
            namespace("kube-system", "kube:main", ""),
            namespace("of-a-file", "file:x", ""),
            namespace("of-a-remote", "kube:east", "east"),
        ];
        let maps = vec![map("b", "ROOTS"), map("c", "OLD")];
        let snapshot = ConfigSnapshot {
            by_kind: [(Kind::Namespace, namespaces.into()), (Kind::ConfigMap, maps.into())].into_iter().collect(),
        };
        let names: Vec<String> =
            lacking(&snapshot, &Mesh::default(), "ROOTS").iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a", "c"]);
    }
}
