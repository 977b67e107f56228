//! Envoy as the judge of generation: worlds of changed objects are generated for every kind of proxy, and a real stock Envoy
//! loads the result. A resource that it refuses is a finding: either generation is wrong, or `generate::check` lacks a rule.
//!
//! For work: `PILOTHOUSE_FUZZ_WORLDS=1000` judges more worlds, `PILOTHOUSE_FUZZ_SEED=7` others.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use pilothouse::model::{Identity, Kind, Locality, Node};
use serde_json::Value;

use crate::{
    loader::Loader,
    mutate::Mutator,
    number,
    targets::{
        objects::{chosen, made},
        world::{DOCUMENTS, nodes},
    },
};

/// Worlds of a run.
const WORLDS: usize = 40;
/// Bytes that choose a world.
const CHOICES: usize = 1024;
/// Findings that are made smaller and shown; of more the messages alone are shown.
const SHOWN: usize = 12;

/// Refusals for reasons that lie outside of the resources, by a part of Envoy's message.
const OUTSIDE: &[&str] = &[
    // Certificates and keys of the proxy's machine.
    "Invalid path: ",
    "unable to read file: ",
    "Failed to load incomplete private key from path: ",
];

/// Texts that some reader may take and Envoy may not.
const TEXTS: &[&str] = &[
    "",
    " ",
    "%",
    "%REQ(a)%",
    "%REQ(%",
    "%DYNAMIC_METADATA(a:b)%",
    "a\nb",
    "a\u{0}b",
    "é",
    "*",
    "**",
    "*.*",
    ".",
    "..",
    "-",
    "a.-b",
    "*a",
    "a*",
    "(",
    "[a-",
    "a{1001}",
    "\\9",
    "\\",
    "(?i)a",
    "\\p{L}",
    "/",
    "//",
    "/a?b",
    "/a#b",
    "a b",
    "a:b",
    "a:99999",
    "[::1]",
    "[::1]:80",
    "0.0.0.0",
    "255.255.255.255",
    "1.2.3.4/33",
    "::",
    "fd00::1/129",
    "unix:///a",
    "unix://@a",
    "0s",
    "-1s",
    "0.0000001s",
    "315576000001s",
    "1h",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "Host",
    ":path",
    "x-envoy-a",
    "content-length",
    "true",
    "RETRY",
    "5xx,reset",
    "connect-failure,nope",
    "999",
    "h2c",
    "HTTP/2",
];
/// Numbers of the same sort.
const NUMBERS: &[i64] = &[
    0,
    1,
    -1,
    2,
    99,
    100,
    101,
    199,
    299,
    304,
    599,
    600,
    1000,
    65_535,
    65_536,
    8_388_609,
    2_147_483_647,
    4_294_967_295,
];

/// Changes some scalars of a document's `spec`.
fn spoil(document: &mut Value, random: &mut Mutator) {
    for _ in 0..random.below(3) {
        let mut leaves = Vec::new();
        leaves_of(&document["spec"], &mut String::from("/spec"), &mut leaves);
        let Some(leaf) = leaves.get(random.below(leaves.len())) else { return };
        let Some(value) = document.pointer_mut(leaf) else { continue };
        *value = match value {
            Value::Number(_) => NUMBERS[random.below(NUMBERS.len())].into(),
            Value::Bool(flag) => Value::Bool(!*flag),
            _ => TEXTS[random.below(TEXTS.len())].into(),
        };
    }
}

/// The places of all scalars.
fn leaves_of(value: &Value, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    let mut step = |key: &str, below: &Value| {
        *path += &format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        leaves_of(below, path, found);
        path.truncate(length);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, below)| step(key, below)),
        Value::Array(list) => list.iter().enumerate().for_each(|(at, below)| step(&at.to_string(), below)),
        _ => found.push(path.clone()),
    }
}

/// The proxies, without `ISTIO_VERSION`: stock Envoys.
fn proxies() -> Vec<(Node, Option<Identity>)> {
    let is_envoy = |node: &Node| &*node.metadata.generator != "grpc";
    let stock = |node: Node| {
        let mut metadata = node.raw_metadata.clone();
        metadata.as_object_mut().unwrap().remove("ISTIO_VERSION");
        Node::from_parts(&node.raw_id, metadata, Locality::default()).unwrap()
    };
    nodes().into_iter().filter(|(node, _)| is_envoy(node)).map(|(node, identity)| (stock(node), identity)).collect()
}

/// An Envoy that is started again when it has ended or waits for ever.
struct Judge {
    loader: Loader,
}

impl Judge {
    /// The resources of a proxy that Envoy refuses, each with the reason.
    async fn refused(&mut self, documents: &[Value], (node, identity): &(Node, Option<Identity>)) -> Vec<String> {
        let resources = made(documents).all(node, identity.as_ref(), &[]);
        let mut lines = self.loader.take(&resources).await;
        if self.loader.is_silent() {
            lines.push(self.loader.tail());
            self.loader = Loader::start(false).await;
        }
        lines.retain(|line| !OUTSIDE.iter().any(|known| line.contains(known)));
        lines
    }

    /// The documents without those that the refusal does not need.
    async fn smaller(&mut self, mut documents: Vec<Value>, proxy: &(Node, Option<Identity>)) -> Vec<Value> {
        let mut at = 0;
        while at < documents.len() {
            let mut fewer = documents.clone();
            fewer.remove(at);
            if self.refused(&fewer, proxy).await.is_empty() { at += 1 } else { documents = fewer }
        }
        documents
    }
}

/// A message without the names and numbers in it, by which findings are told apart.
fn class(message: &str) -> String {
    let words = message.split(|c: char| !c.is_ascii_alphabetic() && c != '.' && c != '_');
    words.filter(|word| !word.is_empty()).take(24).collect::<Vec<_>>().join(" ")
}

async fn judge() {
    let (worlds, seed) = (number("PILOTHOUSE_FUZZ_WORLDS", WORLDS), number("PILOTHOUSE_FUZZ_SEED", 1) as u64);
    let mut judge = Judge { loader: Loader::start(false).await };
    let mut random = Mutator::new(seed, "");
    let mut findings: BTreeMap<String, String> = BTreeMap::new();
    let mut loaded = 0;
    let proxies = proxies();
    for world in 0..worlds {
        // The first one is of all known objects as they are.
        let documents = if world == 0 {
            DOCUMENTS.clone()
        } else {
            let mut documents = chosen(&random.bytes(CHOICES), Kind::ALL);
            documents.iter_mut().for_each(|document| spoil(document, &mut random));
            documents
        };
        for proxy in &proxies {
            loaded += 1;
            let refused = judge.refused(&documents, proxy).await;
            let Some(first) = refused.first() else { continue };
            let class = class(first);
            if findings.contains_key(&class) {
                continue;
            }
            let mut shown = format!("{}: {}", proxy.0.id, refused.join("; "));
            if findings.len() < SHOWN {
                for document in judge.smaller(documents.clone(), proxy).await {
                    shown += &format!("\n{document}");
                }
            }
            findings.insert(class, shown);
        }
    }
    let _ = writeln!(io::stderr(), "stock Envoy: {loaded} proxies of {worlds} worlds of changed objects loaded");
    assert!(loaded > 0);
    let shown: Vec<String> = findings.into_values().collect();
    assert!(shown.is_empty(), "{} findings:\n{}", shown.len(), shown.join("\n\n"));
}

#[test]
fn envoy_accepts_the_resources_of_changed_objects() {
    tokio::runtime::Runtime::new().unwrap().block_on(judge());
}
