//! A folder that stands for a remote cluster.

use std::fs;

use pilothouse::sources::file::settle::Work;

use super::{entry, folder_of_cluster};

#[test]
fn of_a_remote_cluster_services_and_workloads_count_and_configuration_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: s\n  namespace: shop\nspec: {}\n";
    fs::write(dir.path().join("all.yaml"), format!("{service}{}", entry("e", "e.example"))).unwrap();
    for (cluster, expected) in [("", vec!["ServiceEntry/shop/e", "Service/shop/s"]), ("west", vec!["Service/shop/s"])] {
        let mut folder = folder_of_cluster(dir.path(), cluster);
        folder.look(&Work::everything());
        let mut keys: Vec<String> = folder.tree().in_force().keys().map(ToString::to_string).collect();
        keys.sort_by_key(|k| !k.starts_with("ServiceEntry"));
        assert_eq!(keys, expected);
        assert!(folder.tree().in_force().values().all(|c| *c.origin.cluster == *cluster));
    }
}
