//! Imports as the source text shows them: which module names which, re-exports followed to the module that defines the item.
//!
//! Test modules are left out. A macro that builds paths is not seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use regex::Regex;

/// A module's path below the crate, `["xds", "view"]`.
pub type Module = Vec<String>;

/// Every file of `src`, with its path below `src`.
pub fn sources() -> Vec<(PathBuf, String)> {
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

/// The lines without comments and without items under `#[cfg(test)]`, each with its number.
pub fn code(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        if lines[at].trim() == "#[cfg(test)]" {
            at = end_of_item(&lines, at + 1);
            continue;
        }
        if !lines[at].trim_start().starts_with("//") {
            kept.push((at + 1, lines[at]));
        }
        at += 1;
    }
    kept
}

/// The line after the item that begins here: its closing brace or its semicolon, whichever ends it.
fn end_of_item(lines: &[&str], start: usize) -> usize {
    let mut depth = 0i32;
    let mut opened = false;
    for (at, line) in lines.iter().enumerate().skip(start) {
        depth += line.matches('{').count() as i32 - line.matches('}').count() as i32;
        opened |= line.contains('{');
        if depth <= 0 && (opened || line.trim_end().ends_with(';')) {
            return at + 1;
        }
    }
    lines.len()
}

/// All modules and the modules that each of them names.
pub struct Imports {
    pub uses: BTreeMap<Module, BTreeSet<Module>>,
}

/// A resolved path: the module, and the rest of the path inside of it.
type Resolved = (Module, Vec<String>);

static USE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^\s*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);").unwrap());
static PATH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b\w+(?:::\w+)+").unwrap());

impl Imports {
    pub fn read() -> Self {
        let files = sources().into_iter().filter(|(path, _)| !is_test(path));
        let bodies: BTreeMap<Module, String> = files
            .map(|(path, text)| {
                let body: Vec<&str> = code(&text).into_iter().map(|(_, line)| line).collect();
                (module_of(&path), body.join("\n"))
            })
            .collect();
        let modules: BTreeSet<Module> = bodies.keys().cloned().collect();
        let mut exports: BTreeMap<Module, BTreeMap<String, Resolved>> = BTreeMap::new();
        for (module, body) in &bodies {
            for found in USE.captures_iter(body).filter(|found| found.get(1).is_some()) {
                for path in expand(&found[2], &[]) {
                    let name = path.last().unwrap().clone();
                    if let Some(resolved) = resolve(&modules, &path, module) {
                        exports.entry(module.clone()).or_default().insert(name, resolved);
                    }
                }
            }
        }
        let mut uses = BTreeMap::new();
        for (module, body) in &bodies {
            let mut paths = Vec::new();
            for found in USE.captures_iter(body).filter(|found| found.get(1).is_none()) {
                paths.extend(expand(&found[2], &[]));
            }
            let rest = USE.replace_all(body, "");
            paths.extend(PATH.find_iter(&rest).map(|path| path.as_str().split("::").map(String::from).collect()));
            let resolved = paths.iter().filter_map(|path| resolve(&modules, path, module));
            let mut named: BTreeSet<Module> = resolved.map(|found| definition(&exports, found)).collect();
            named.remove(module);
            uses.insert(module.clone(), named);
        }
        Self { uses }
    }

    /// The circles among the modules of one room; `x.rs` may name the modules in `x/`, so these arrows do not count.
    pub fn circles(&self, room: &str) -> Vec<Vec<String>> {
        let inside: Vec<&Module> = self.uses.keys().filter(|module| module[0] == room).collect();
        let below = |face: &Module, module: &Module| module.len() > face.len() && module.starts_with(face);
        let reach = |from: &Module| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(module) = open.pop() {
                for next in self.uses.get(&module).into_iter().flatten() {
                    if next[0] == room && !below(&module, next) && seen.insert(next.clone()) {
                        open.push(next.clone());
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<&Module, BTreeSet<Module>> =
            inside.iter().map(|module| (*module, reach(module))).collect();
        let mut circles = BTreeSet::new();
        for module in &inside {
            let circle: Vec<String> = inside
                .iter()
                .filter(|other| reached[*module].contains(**other) && reached[*other].contains(*module))
                .map(|other| other.join("::"))
                .collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }
}

fn is_test(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "tests.rs") || path.components().any(|c| c.as_os_str() == "tests")
}

fn module_of(path: &Path) -> Module {
    let text = path.with_extension("");
    text.components().map(|c| c.as_os_str().to_string_lossy().into_owned()).collect()
}

/// The paths of a `use` tree.
fn expand(tree: &str, prefix: &[String]) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let split =
        |text: &str| text.split("::").map(|s| s.trim().to_string()).filter(|s| !s.is_empty()).collect::<Vec<_>>();
    let Some((head, group)) = tree.split_once('{') else {
        let plain = tree.split(" as ").next().unwrap();
        return vec![prefix.iter().cloned().chain(split(plain)).collect()];
    };
    let prefix: Vec<String> = prefix.iter().cloned().chain(split(head)).collect();
    let group = group.trim_end().trim_end_matches('}');
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(c);
    }
    // The outer braces that were trimmed from the end of the last part.
    let open = |part: &String| part.matches('{').count().saturating_sub(part.matches('}').count());
    let parts = parts.into_iter().map(|part| part.clone() + &"}".repeat(open(&part)));
    parts.filter(|part| !part.trim().is_empty()).flat_map(|part| expand(&part, &prefix)).collect()
}

/// The module that a path leads into, with the rest of the path; `None` for paths that leave the crate.
fn resolve(modules: &BTreeSet<Module>, path: &[String], from: &Module) -> Option<Resolved> {
    let mut path = path;
    let mut full: Module = match path[0].as_str() {
        "crate" => {
            path = &path[1..];
            Vec::new()
        }
        "self" => {
            path = &path[1..];
            from.clone()
        }
        "super" => {
            let mut up = from.clone();
            while path.first().is_some_and(|part| part == "super") {
                up.pop();
                path = &path[1..];
            }
            up
        }
        first => {
            let mut child = from.clone();
            child.push(first.to_string());
            if !modules.contains(&child) {
                return None;
            }
            from.clone()
        }
    };
    full.extend(path.iter().cloned());
    (1..=full.len()).rev().find(|n| modules.contains(&full[..*n])).map(|n| (full[..n].to_vec(), full[n..].to_vec()))
}

/// The module that defines an item, through re-exports.
fn definition(exports: &BTreeMap<Module, BTreeMap<String, Resolved>>, (module, rest): Resolved) -> Module {
    let exported = rest.first().and_then(|name| exports.get(&module)?.get(name));
    match exported {
        Some(next) if next.0 != module => definition(exports, next.clone()),
        _ => module,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_trees_are_expanded() {
        let paths: Vec<String> =
            expand("crate::{a::{B, c::D}, e as f}", &[]).into_iter().map(|path| path.join("::")).collect();
        assert_eq!(paths, ["crate::a::B", "crate::a::c::D", "crate::e"]);
    }

    #[test]
    fn items_under_test_are_left_out_and_the_code_after_them_is_kept() {
        let text =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod more;\nfn d() {}";
        let kept: Vec<&str> = code(text).into_iter().map(|(_, line)| line).collect();
        assert_eq!(kept, ["fn a() {}", "fn c() {}", "fn d() {}"]);
    }
}
