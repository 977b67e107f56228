//! The house rules: which room may use which, every file opens with its page, files stay short, actix stays in its places.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Room → what it may use. `app` and `cli` may use everything; nothing may use them.
const MAY_USE: &[(&str, &[&str])] = &[
    ("proto", &[]),
    ("telemetry", &[]),
    ("runtime", &["telemetry"]),
    ("model", &["proto"]),
    ("settings", &["model", "proto"]),
    ("sources", &["model", "proto", "runtime", "telemetry", "settings"]),
    ("store", &["model", "proto", "sources", "runtime", "telemetry"]),
    ("handlers", &["model", "store", "runtime", "telemetry"]),
    ("registry", &["model", "proto", "store", "handlers", "runtime", "telemetry"]),
    ("translate", &["model", "proto"]),
    ("push", &["model", "proto", "store", "registry", "translate", "runtime", "telemetry"]),
    ("simulate", &["proto", "model"]),
    ("generate", &["model", "proto", "push"]),
    (
        "xds",
        // Of `handlers` only the port that it implements: whoever pushes declares it (`XdsUpdater`).
        &[
            "model",
            "proto",
            "handlers",
            "registry",
            "translate",
            "push",
            "generate",
            "runtime",
            "telemetry",
            "settings",
        ],
    ),
    ("registration", &["model", "proto", "sources", "store", "xds", "runtime", "telemetry"]),
    ("status", &["model", "proto", "settings", "sources", "store", "translate", "push", "xds", "runtime", "telemetry"]),
    (
        "admin",
        &[
            "model",
            "proto",
            "runtime",
            "telemetry",
            "settings",
            "sources",
            "store",
            "handlers",
            "registry",
            "translate",
            "push",
            "generate",
            "xds",
            "status",
        ],
    ),
];

/// Rooms that compose; they may use everything.
const COMPOSERS: &[&str] = &["app", "cli", "main", "lib", "testing"];

/// Longest file, in lines, tests included.
const LONGEST_FILE: usize = 500;

fn sources() -> Vec<(PathBuf, String)> {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut open, mut found) = (vec![base.clone()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(&base).unwrap().to_path_buf(), text));
            }
        }
    }
    found.sort();
    found
}

fn room(path: &Path) -> String {
    let first = path.components().next().unwrap().as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_string()
}

/// Lines of code, without comments and without the tests at the end of a file.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let tests = text.find("#[cfg(test)]").unwrap_or(text.len());
    text[..tests].lines().enumerate().filter(|(_, l)| !l.trim_start().starts_with("//")).map(|(n, l)| (n + 1, l))
}

#[test]
fn rooms_use_only_the_rooms_above_them() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let names: Vec<&str> = MAY_USE.iter().map(|(n, _)| *n).chain(["app", "cli"]).collect();
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let room = room(&path);
        if COMPOSERS.contains(&room.as_str()) || path.file_name().is_some_and(|n| n == "tests.rs") {
            continue;
        }
        let Some(may) = allowed.get(room.as_str()) else {
            wrong.push(format!("{}: the room {room} is not in the table", path.display()));
            continue;
        };
        for (line, used) in used_rooms(&text) {
            if used != room && names.contains(&used.as_str()) && !may.contains(&used.as_str()) {
                wrong.push(format!("{}:{line}: {room} may not use {used}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Rooms named by `crate::ROOM` or inside `use crate::{ROOM…, ROOM…}`, with the line.
fn used_rooms(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut depth_in_use: Option<i32> = None;
    for (number, line) in code(text) {
        let mut rest = line;
        while let Some(at) = rest.find("crate::") {
            rest = &rest[at + "crate::".len()..];
            if rest.starts_with('{') {
                depth_in_use = Some(0);
                break;
            }
            found.push((number, word(rest)));
        }
        let Some(depth) = depth_in_use.as_mut() else { continue };
        let mut start = true;
        for (at, c) in rest.char_indices() {
            match c {
                '{' => {
                    *depth += 1;
                    start = *depth == 1;
                }
                '}' => *depth -= 1,
                ',' => start = *depth == 1,
                c if (c.is_alphanumeric() || c == '_') && start && *depth == 1 => {
                    found.push((number, word(&rest[at..])));
                    start = false;
                }
                _ => {}
            }
        }
        if *depth <= 0 {
            depth_in_use = None;
        }
    }
    found
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
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
        "build.rs",
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
