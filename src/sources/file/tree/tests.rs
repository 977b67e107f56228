//! Which objects are in force after which files.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{model::Origin, sources::file::parse::parse_text};

fn tree() -> Tree {
    Tree::new(MassDeletionGuard::new(Duration::from_secs(600)), InForce::default())
}

fn document(name: &str, host: &str) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: ns}}\nspec: {{hosts: [{host}], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: DNS}}\n"
    )
}

fn put(tree: &mut Tree, path: &str, text: &str) {
    let path = Arc::new(PathBuf::from(path));
    let documents = parse_text(&Origin::default(), &path, text);
    tree.replace(&path, documents);
}

fn delta(tree: &mut Tree) -> (Vec<String>, Vec<String>) {
    let Change::Delta { upserts, deletes } = tree.commit(usize::MAX, Instant::now()) else { panic!("full") };
    let up = upserts.iter().map(|c| c.service_entry().unwrap().hosts[0].clone()).collect();
    (up, deletes.iter().map(|k| k.name.to_string()).collect())
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|t| (*t).to_string()).collect()
}

#[test]
fn only_changed_documents_are_told() {
    let mut tree = tree();
    put(&mut tree, "a.yaml", &(document("a", "a.b") + &document("b", "b.b")));
    assert_eq!(delta(&mut tree), (texts(&["a.b", "b.b"]), vec![]));
    put(&mut tree, "a.yaml", &(document("b", "b.c") + &document("a", "a.b")));
    assert_eq!(delta(&mut tree), (texts(&["b.c"]), vec![]));
    put(&mut tree, "a.yaml", &document("b", "b.c"));
    assert_eq!(delta(&mut tree), (vec![], texts(&["a"])));
}

#[test]
fn a_refused_document_keeps_its_last_good_version() {
    let mut tree = tree();
    put(&mut tree, "a.yaml", &document("a", "a.b"));
    delta(&mut tree);
    put(&mut tree, "a.yaml", &document("a", "{x: y}"));
    assert_eq!(delta(&mut tree), (vec![], vec![]));
    assert_eq!(tree.findings().refused.len(), 1);
    assert_eq!(tree.kept().len(), 1);
    put(&mut tree, "a.yaml", &document("a", "a.c"));
    assert_eq!(delta(&mut tree), (texts(&["a.c"]), vec![]));
    assert!(tree.findings().refused.is_empty() && tree.kept().is_empty());
}

#[test]
fn nothing_goes_while_a_document_of_its_file_is_broken() {
    let mut tree = tree();
    put(&mut tree, "a.yaml", &(document("a", "a.b") + &document("b", "b.b")));
    delta(&mut tree);
    put(&mut tree, "a.yaml", &(document("a", "a.b") + "---\nkind: [\n"));
    assert_eq!(delta(&mut tree), (vec![], vec![]));
    put(&mut tree, "a.yaml", &document("a", "a.b"));
    assert_eq!(delta(&mut tree), (vec![], texts(&["b"])));
}

#[test]
fn a_shadowed_object_takes_over_when_the_first_goes() {
    let mut tree = tree();
    put(&mut tree, "b.yaml", &document("a", "second.b"));
    put(&mut tree, "a.yaml", &document("a", "first.b"));
    assert_eq!(delta(&mut tree), (texts(&["first.b"]), vec![]));
    assert!(tree.findings().warned.iter().any(|w| w.file == "b.yaml" && w.warning.contains("a.yaml:2")));
    tree.remove(&Arc::new("a.yaml".into()));
    assert_eq!(delta(&mut tree), (texts(&["second.b"]), vec![]));
}

#[test]
fn a_file_that_cannot_be_read_keeps_its_objects() {
    let mut tree = tree();
    put(&mut tree, "a.yaml", &document("a", "a.b"));
    delta(&mut tree);
    tree.fail(&Arc::new("a.yaml".into()), 0, "permission denied".to_string());
    assert_eq!(delta(&mut tree), (vec![], vec![]));
    assert_eq!(tree.findings().refused[0].reason, "permission denied");
}

#[test]
fn an_incomplete_listing_deletes_nothing() {
    let mut tree = tree();
    put(&mut tree, "a.yaml", &document("a", "a.b"));
    delta(&mut tree);
    tree.remove(&Arc::new("a.yaml".into()));
    tree.set_unknown(vec![PathBuf::from("")]);
    assert_eq!(delta(&mut tree), (vec![], vec![]));
    tree.set_unknown(Vec::new());
    put(&mut tree, "b.yaml", &document("b", "b.b"));
    assert_eq!(delta(&mut tree), (texts(&["b.b"]), texts(&["a"])));
}

#[test]
fn an_emptied_folder_is_held_and_forgotten_when_files_return() {
    let mut tree = tree();
    put(&mut tree, "a.yaml", &document("a", "a.b"));
    delta(&mut tree);
    tree.remove(&Arc::new("a.yaml".into()));
    assert_eq!(delta(&mut tree), (vec![], vec![]));
    assert_eq!(tree.held().len(), 1);
    put(&mut tree, "a.yaml", &document("a", "a.b"));
    assert_eq!(delta(&mut tree), (vec![], vec![]));
    assert!(tree.held().is_empty() && tree.held_until().is_none());
}

#[test]
fn a_new_run_takes_up_the_objects_in_force() {
    let mut first = tree();
    put(&mut first, "a.yaml", &(document("a", "a.b") + &document("b", "b.b")));
    delta(&mut first);
    let mut second = Tree::new(MassDeletionGuard::new(Duration::ZERO), first.in_force().clone());
    put(&mut second, "a.yaml", &document("a", "a.b"));
    assert_eq!(delta(&mut second), (vec![], texts(&["b"])));
}

#[test]
fn saved_objects_are_recalled_where_their_documents_cannot_be_read() {
    let mut first = tree();
    for file in ["sound", "gone", "failed", "refused", "moved", "below/far"] {
        put(
            &mut first,
            &format!("{file}.yaml"),
            &document(&file.replace('/', "-"), &format!("{}.b", file.replace('/', "-"))),
        );
    }
    delta(&mut first);
    let saved: Vec<_> = first.in_force().values().cloned().collect();
    let mut second = tree();
    put(&mut second, "sound.yaml", &document("sound", "new.b"));
    put(&mut second, "moved.yaml", &document("moved", "moved.b").replace("ServiceEntry", "Serviceentry"));
    put(&mut second, "elsewhere.yaml", &document("moved", "elsewhere.b"));
    second.fail(&Arc::new("failed.yaml".into()), 0, "unreadable".to_string());
    put(&mut second, "refused.yaml", &document("refused", "refused.b").replace("hosts: [", "hosts: [7, "));
    second.set_unknown(vec![PathBuf::from("below")]);
    delta(&mut second);
    assert!(second.has_unclear());
    second.recall(saved, Instant::now());
    let hosts = |tree: &Tree| tree.in_force().values().map(|c| c.service_entry().unwrap().hosts[0].clone()).collect();
    let now: BTreeSet<String> = hosts(&second);
    let names = ["below-far.b", "elsewhere.b", "failed.b", "new.b", "refused.b"].map(String::from);
    assert_eq!(now, BTreeSet::from(names));
    put(&mut second, "failed.yaml", &document("other", "other.b"));
    assert_eq!(delta(&mut second), (texts(&["other.b"]), texts(&["failed"])));
}

proptest! {
    #[test]
    fn the_objects_in_force_depend_on_the_final_files_only(
        steps in prop::collection::vec((0..4usize, prop::collection::vec((0..5usize, 0..3usize), 0..4)), 1..20)
    ) {
        let mut walked = Tree::new(MassDeletionGuard::new(Duration::ZERO), InForce::default());
        let mut last: BTreeMap<usize, String> = BTreeMap::new();
        for (file, objects) in &steps {
            let text: String = objects.iter().map(|(n, h)| document(&format!("o{n}"), &format!("h{h}.b"))).collect();
            let path = format!("f{file}.yaml");
            if objects.is_empty() {
                walked.remove(&Arc::new(PathBuf::from(&path)));
                last.remove(file);
            } else {
                put(&mut walked, &path, &text);
                last.insert(*file, text);
            }
            walked.commit(usize::MAX, Instant::now());
        }
        let mut fresh = Tree::new(MassDeletionGuard::new(Duration::ZERO), InForce::default());
        for (file, text) in last.iter().rev() {
            put(&mut fresh, &format!("f{file}.yaml"), text);
        }
        fresh.commit(usize::MAX, Instant::now());
        let stamps = |t: &Tree| t.in_force().iter().map(|(k, c)| (k.clone(), c.stamp)).collect::<BTreeMap<_, _>>();
        prop_assert_eq!(stamps(&walked), stamps(&fresh));
    }
}
