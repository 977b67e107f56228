//! The house rules: which room may use which, no circle inside a room, every file opens with its page, files stay short, actix
//! stays in its places.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod imports;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use imports::{Imports, code, sources};

/// Room → the rooms that it uses; a permission without a use fails. The composers may use everything, and nothing may use them.
const MAY_USE: &[(&str, &[&str])] = &[
    ("proto", &[]),
    ("telemetry", &[]),
    ("runtime", &[]),
    ("model", &["proto"]),
    ("settings", &["model"]),
    ("sources", &["model", "proto", "runtime", "settings", "telemetry"]),
    ("store", &["model", "runtime", "sources"]),
    ("handlers", &["model", "runtime", "store"]),
    ("registry", &["model", "proto", "runtime"]),
    ("translate", &["model", "proto"]),
    ("push", &["model", "proto", "translate"]),
    ("simulate", &["proto"]),
    ("generate", &["model", "proto", "push"]),
    ("analysis", &["model", "proto", "push"]),
    // Of `model` only the type URLs of config objects.
    ("xds", &["model", "proto", "telemetry"]),
    ("identity", &["model", "proto", "runtime", "settings", "sources", "telemetry"]),
    // Of `handlers` only the test that compares incremental with cold contexts.
    (
        "discovery",
        &["generate", "handlers", "identity", "model", "proto", "push", "registry", "runtime", "telemetry", "xds"],
    ),
    ("registration", &["discovery", "model", "proto", "runtime", "sources", "store"]),
    ("status", &["analysis", "discovery", "model", "proto", "push", "runtime", "sources"]),
    (
        "admin",
        &[
            "analysis",
            "discovery",
            "identity",
            "model",
            "proto",
            "push",
            "runtime",
            "sources",
            "status",
            "store",
            "telemetry",
            "xds",
        ],
    ),
];

/// Circles inside rooms that are left, each with its reason.
const CIRCLES: &[(&[&str], &str)] = &[
    (
        &["push::changes", "push::context"],
        "a context keeps its difference from the context that it was built after, which is a comparison of two contexts",
    ),
    (
        &["xds::views::outgoing", "xds::views::snapshot", "xds::views::update"],
        "a type that holds itself: a snapshot keeps the updates that lead from it, so that they end with it",
    ),
];

/// Rooms that compose; they may use everything.
const COMPOSERS: &[&str] = &["app", "cli", "main", "lib", "testing", "guide"];

/// Longest file, in lines, tests included.
const LONGEST_FILE: usize = 500;
/// Longest file of an actor, without its tests: decisions are functions of other files.
const LONGEST_ACTOR: usize = 350;

fn room(path: &Path) -> String {
    let first = path.components().next().unwrap().as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_string()
}

#[test]
fn rooms_use_only_the_rooms_above_them() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (module, named) in Imports::read().uses {
        let room = module[0].clone();
        if COMPOSERS.contains(&room.as_str()) {
            continue;
        }
        let Some(may) = allowed.get(room.as_str()) else {
            wrong.push(format!("{}: the room {room} is not in the table", module.join("::")));
            continue;
        };
        for other in named.iter().filter(|other| other[0] != room) {
            if !may.contains(&other[0].as_str()) {
                wrong.push(format!("{}: {room} may not use {}", module.join("::"), other.join("::")));
            }
            used.entry(room.clone()).or_default().insert(other[0].clone());
        }
    }
    for (room, may) in MAY_USE {
        for unused in may.iter().filter(|other| !used.get(*room).is_some_and(|used| used.contains(**other))) {
            wrong.push(format!("{room} does not use {unused}: take the permission away"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn no_room_has_a_circle() {
    let imports = Imports::read();
    let rooms: BTreeSet<&String> = imports.uses.keys().map(|module| &module[0]).collect();
    let found: Vec<Vec<String>> = rooms.iter().flat_map(|room| imports.circles(room)).collect();
    let known = |circle: &Vec<String>| CIRCLES.iter().any(|(members, _)| circle.iter().eq(members.iter()));
    let mut wrong: Vec<String> =
        found.iter().filter(|circle| !known(circle)).map(|circle| format!("a circle: {}", circle.join(", "))).collect();
    for (members, _) in CIRCLES {
        if !found.iter().any(|circle| circle.iter().eq(members.iter())) {
            wrong.push(format!("no circle any more, strike it off the list: {}", members.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_file_opens_with_its_page_and_is_short() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if !text.starts_with("//!") {
            wrong.push(format!("{}: the first line is not `//!`", path.display()));
        }
        let lines = text.lines().count();
        if lines > LONGEST_FILE {
            wrong.push(format!("{}: {lines} lines, split it by noun", path.display()));
        }
        let is_actor = path.file_name().is_some_and(|name| name == "actor.rs");
        let lines = text.split("#[cfg(test)]").next().map_or(0, |code| code.lines().count());
        if is_actor && lines > LONGEST_ACTOR {
            wrong.push(format!("{}: {lines} lines of an actor, move its decisions out", path.display()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn actix_stays_in_its_places() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let place = ["runtime", "admin", "app"].contains(&room(&path).as_str());
        let actor =
            path.file_name().is_some_and(|n| n == "actor.rs") || path.components().any(|c| c.as_os_str() == "actor");
        if place || actor {
            continue;
        }
        for (line, text) in code(&text) {
            if text.contains("actix") {
                wrong.push(format!("{}:{line}: actix outside of its places", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_top_level_holds_nothing_else() {
    const KNOWN: &[&str] = &[
        "Cargo.toml",
        "Cargo.lock",
        "LICENSE",
        "README.md",
        "Dockerfile",
        "src",
        "proto",
        "config",
        "tests",
        "target",
    ];
    let mut wrong = Vec::new();
    for entry in fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && !KNOWN.contains(&name.as_str()) {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
