//! Very many files, or objects, that appear at once.

use std::{collections::BTreeSet, fs, time::Instant};

use pilothouse::sources::{
    Change,
    file::{disk::Disk, settle::Work},
};

use super::{entries, entry, folder_of, hosts};

const FILES: usize = 2_500;

#[test]
fn a_change_beside_very_many_new_files_is_in_the_first_look_and_nothing_that_moves_is_gone_between() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a.yaml");
    fs::write(&a, entry("a", "a.example") + &entry("moves", "moves.example") + &entry("goes", "goes.example")).unwrap();
    let mut folder = folder_of(dir.path());
    folder.look(&Work::everything());
    for n in 0..FILES {
        let moved = if n == FILES / 2 { entry("moves", "moves.example") } else { String::new() };
        fs::write(dir.path().join(format!("f{n:05}.yaml")), entry(&format!("f{n}"), &format!("f{n}.example")) + &moved)
            .unwrap();
    }
    fs::write(dir.path().join("a.new"), entry("a", "changed.example")).unwrap();
    fs::rename(dir.path().join("a.new"), &a).unwrap();
    let (mut looks, mut work) = (0, Work::everything());
    loop {
        let Change::Delta { upserts, deletes } = folder.look(&work).change else { panic!("a delta") };
        looks += 1;
        assert!(upserts.len() <= 1_001, "{} objects in one look", upserts.len());
        assert!(hosts(&folder).contains(&"changed.example".to_string()), "after {looks} looks");
        let is_read = folder.unparsed().next().is_none();
        assert_eq!(deletes.len(), usize::from(is_read), "an unread file may hold it");
        if is_read {
            break;
        }
        assert!(folder.next_due().is_some_and(|due| due <= Instant::now()), "no event is needed to go on");
        work = Work::default();
    }
    assert_eq!(looks, 3);
    let hosts = hosts(&folder);
    assert_eq!(hosts.len(), FILES + 2);
    assert!(hosts.contains(&"moves.example".to_string()) && !hosts.contains(&"goes.example".to_string()));
}

#[tokio::test]
async fn a_change_beside_a_file_of_very_many_new_objects_is_among_the_first_and_removals_are_judged_together() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        fs::write(dir.path().join("new"), text).unwrap();
        fs::rename(dir.path().join("new"), dir.path().join(name)).unwrap();
    };
    put("a.yaml", &entry("a", "a.example"));
    let mut folder = folder_of(dir.path());
    folder.look(&Work::everything());
    put("many.yaml", &entries(FILES));
    folder.look(&Work::everything());
    assert!(folder.tree().is_pending() && hosts(&folder).len() == 1_001);
    put("a.yaml", &entry("a", "changed.example"));
    folder.look(&Work::everything());
    assert!(hosts(&folder).contains(&"changed.example".to_string()));
    folder.look(&Work::default());
    assert!(!folder.tree().is_pending() && hosts(&folder).len() == FILES + 1);
    assert_eq!(folder.next_due(), None);
    fs::remove_file(dir.path().join("many.yaml")).unwrap();
    folder.look(&Work::everything());
    assert_eq!((hosts(&folder).len(), folder.tree().held().len()), (FILES + 1, FILES));
}

#[test]
fn a_listing_beside_looks_takes_nothing_back_that_they_have_seen() {
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    let put =
        |name: &str| fs::write(root.join(format!("{name}.yaml")), entry(name, &format!("{name}.example"))).unwrap();
    let single = |name: &str| Work::closed(&root.join(format!("{name}.yaml")));
    ["a", "b", "c"].into_iter().for_each(put);
    let mut folder = folder_of(&root);
    folder.look(&Work::everything());
    let request = folder.begin_listing(BTreeSet::new());
    put("d");
    let listing = Disk::default().list(&request);
    put("e");
    folder.look(&single("e"));
    fs::remove_file(root.join("a.yaml")).unwrap();
    folder.look(&single("a"));
    folder.take_listing(listing);
    assert_eq!(hosts(&folder), ["b.example", "c.example", "d.example", "e.example"]);
    // A listing that a look at everything has overtaken.
    let request = folder.begin_listing(BTreeSet::new());
    let listing = Disk::default().list(&request);
    put("f");
    folder.look(&Work::everything());
    assert!(folder.take_listing(listing).change.is_empty());
    assert!(hosts(&folder).contains(&"f.example".to_string()));
}
