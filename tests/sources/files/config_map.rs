//! A mounted ConfigMap, whose `..data` link the kubelet moves.

use std::{fs, os::unix::fs::symlink, path::Path};

use pilothouse::sources::file::settle::Work;

use super::{Stage, entry, folder_of, hosts};

#[test]
fn a_thousand_swaps_of_a_config_map_are_each_seen() {
    let dir = tempfile::tempdir().unwrap();
    let mut folder = folder_of(dir.path());
    for i in 0..1000 {
        swap_config_map(dir.path(), i);
        folder.look(&Work::everything());
        assert_eq!(hosts(&folder), [format!("v{i}.example")]);
    }
}

/// The kubelet's update: a new folder beside the old one, and one link renamed.
fn swap_config_map(root: &Path, version: usize) {
    let data = format!("..{version}");
    fs::create_dir(root.join(&data)).unwrap();
    fs::write(root.join(&data).join("a.yaml"), entry("a", &format!("v{version}.example"))).unwrap();
    symlink(&data, root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    if version == 0 {
        symlink("..data/a.yaml", root.join("a.yaml")).unwrap();
    } else {
        fs::remove_dir_all(root.join(format!("..{}", version - 1))).unwrap();
    }
}

#[tokio::test]
async fn swaps_of_a_config_map_in_a_row_end_in_the_last_one() {
    let stage = Stage::set(&entry("other", "other.example")).await;
    fs::remove_file(stage.root().join("a.yaml")).unwrap();
    for i in 0..1000 {
        swap_config_map(&stage.root(), i);
    }
    stage.until(|told| told.0.contains(&"v999.example".to_string())).await;
}
