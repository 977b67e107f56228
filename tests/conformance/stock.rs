//! Every recorded Envoy proxy as a stock Envoy, that is, without `ISTIO_VERSION` in its metadata: a real Envoy loads its
//! resources, and they differ from Istio's form as `stock-envoy.md` says.
//!
//! One Envoy loads all proxies, one after the other ([`Loader`]). A refusal is an error unless `stock-refused.yaml` has its case with the reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use pilothouse::discovery::Resources;
use serde_json::{Value, json};

use crate::{
    data::{self, Case},
    loader::Loader,
    xds,
};

/// One of so many proxies is loaded by the oldest Envoy as well.
const SAMPLE: usize = 8;

/// The recorded proxies that are Envoys.
fn proxies() -> Vec<Case> {
    xds::cases().into_iter().filter(xds::is_envoy).collect()
}

/// Has an Envoy load these proxies; returns the refusals by case.
async fn loaded(oldest: bool, cases: &[Case]) -> BTreeMap<String, Vec<String>> {
    let mut loader = Loader::start(oldest).await;
    let mut refused = BTreeMap::new();
    for case in cases {
        let lines = loader.take(&xds::sent(case, xds::Mode::Stock)).await;
        if !lines.is_empty() {
            refused.insert(case.id.clone(), lines);
        }
        assert!(!loader.is_silent(), "{}: {:?}\n{}", case.id, refused[&case.id], loader.tail());
    }
    refused
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(name)
}

/// Loads the proxies, and compares the refusals with the known ones.
pub fn load() {
    let known: BTreeMap<String, String> =
        serde_saphyr::from_str(&fs::read_to_string(path("stock-refused.yaml")).unwrap()).unwrap();
    assert!(known.values().all(|reason| reason.len() > 20), "a refusal without a reason");
    let filter = std::env::var("PILOTHOUSE_CASES").unwrap_or_default();
    let all: Vec<Case> = proxies().into_iter().filter(|c| filter.split(',').any(|f| c.id.contains(f))).collect();
    assert!(!all.is_empty());
    let sample: Vec<Case> = proxies().into_iter().step_by(SAMPLE).filter(|_| filter.is_empty()).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let begun = std::time::Instant::now();
    let newest = runtime.block_on(loaded(false, &all));
    data::say(&format!(
        "stock Envoy: {} proxies loaded, {} of them refused, in {:.0?}",
        all.len(),
        newest.len(),
        begun.elapsed()
    ));
    let oldest = if sample.is_empty() { BTreeMap::new() } else { runtime.block_on(loaded(true, &sample)) };
    data::say(&format!("oldest stock Envoy: {} proxies loaded, {} of them refused", sample.len(), oldest.len()));
    let mut wrong: Vec<String> = Vec::new();
    for (id, lines) in newest.iter().chain(&oldest).filter(|(id, _)| !known.contains_key(*id)) {
        wrong.push(format!("{id}: {}", lines.join("; ")));
    }
    let stale = known.keys().filter(|id| all.iter().any(|c| c.id == **id) && !newest.contains_key(*id));
    wrong.extend(stale.map(|id| format!("{id} is listed in stock-refused.yaml, and Envoy takes it")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The changes of stock mode by place, each with the number of its occurrences and the proxies that have it.
#[derive(Default)]
struct Table(BTreeMap<(String, &'static str), (usize, BTreeSet<String>)>);

/// Filters are told apart by their names, other entries of lists are not.
fn entry(field: &str, value: &Value) -> String {
    match value["name"].as_str() {
        Some(name) if matches!(field, "filters" | "httpFilters" | "listenerFilters") => format!("{field}[{name}]"),
        _ => format!("{field}[]"),
    }
}

impl Table {
    fn note(&mut self, path: &str, what: &'static str, proxy: &str) {
        let row = self.0.entry((path.to_string(), what)).or_default();
        row.0 += 1;
        row.1.insert(proxy.to_string());
    }

    fn compare(&mut self, path: &str, field: &str, istio: &Value, stock: &Value, proxy: &str) {
        match (istio, stock) {
            (Value::Object(i), Value::Object(s)) => {
                let keys: BTreeSet<&String> = i.keys().chain(s.keys()).collect();
                for key in keys {
                    let below = format!("{path}.{key}");
                    match (i.get(key), s.get(key)) {
                        (Some(i), Some(s)) => self.compare(&below, key, i, s, proxy),
                        (Some(_), None) => self.note(&below, "left out", proxy),
                        _ => self.note(&below, "added", proxy),
                    }
                }
            }
            (Value::Array(i), Value::Array(s)) => self.lists(path, field, i, s, proxy),
            (i, s) if i == s => {}
            (i, s) => {
                let change = format!("{path}: {} → {}", shown(i), shown(s));
                self.note(&change, "changed", proxy);
            }
        }
    }

    /// Named entries are compared by name, others by place where there are equally many, else as sets.
    fn lists(&mut self, path: &str, field: &str, istio: &[Value], stock: &[Value], proxy: &str) {
        let base = path.strip_suffix(field).unwrap_or(path);
        let name = |v: &Value| v["name"].as_str().map(String::from);
        let distinct = |list: &[Value]| {
            let names: Option<BTreeSet<String>> = list.iter().map(name).collect();
            names.is_some_and(|names| names.len() == list.len())
        };
        if distinct(istio) && distinct(stock) {
            for i in istio {
                let below = format!("{base}{}", entry(field, i));
                match stock.iter().find(|s| s["name"] == i["name"]) {
                    Some(s) => self.compare(&below, field, i, s, proxy),
                    None => self.note(&below, "left out", proxy),
                }
            }
            for s in stock.iter().filter(|s| istio.iter().all(|i| i["name"] != s["name"])) {
                self.note(&format!("{base}{}", entry(field, s)), "added", proxy);
            }
        } else if istio.len() == stock.len() {
            istio.iter().zip(stock).for_each(|(i, s)| self.compare(&format!("{path}[]"), field, i, s, proxy));
        } else {
            let text = |v: &Value| match v.is_object() {
                true => format!("{base}{}", entry(field, v)),
                false => format!("{path}[] {}", shown(v)),
            };
            istio.iter().filter(|i| !stock.contains(i)).for_each(|i| self.note(&text(i), "left out", proxy));
            stock.iter().filter(|s| !istio.contains(s)).for_each(|s| self.note(&text(s), "added", proxy));
        }
    }

    fn of(mode: xds::Mode) -> Self {
        let mut table = Self::default();
        for case in proxies() {
            let (istio, stock) = (xds::sent(&case, xds::Mode::Istio), xds::sent(&case, mode));
            table.compare("", "", &lists(&istio), &lists(&stock), &case.id);
        }
        table
    }

    fn written(&self, title: &str) -> String {
        let mut text = format!("\n## {title}\n\n| place | in stock mode | places | proxies |\n|---|---|---|---|\n");
        for ((path, what), (places, proxies)) in &self.0 {
            text += &format!("| `{path}` | {what} | {places} | {} |\n", proxies.len());
        }
        text
    }
}

fn lists(r: &Resources) -> Value {
    json!({"clusters": xds::shown(&r.clusters), "endpoints": xds::shown(&r.endpoints), "listeners": xds::shown(&r.listeners),
        "routes": xds::shown(&r.routes), "secrets": xds::shown(&r.secrets)})
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The table of the changes of stock mode equals the reviewed page.
pub fn table() {
    let head = "# Stock Envoys\n\nGenerated from the recorded proxies: their resources with `ISTIO_VERSION`, as Istio sends them, \
        against those without, as a stock Envoy gets them.\n`PILOTHOUSE_STOCK=update cargo test --test conformance stock_mode` \
        writes it.\n";
    let without = Table::of(xds::Mode::Stock).written("Without certificate files: no mutual TLS of the mesh");
    let with = Table::of(xds::Mode::StockWithFiles)
        .written("With certificate files in its metadata (`TLS_CLIENT_…`, `TLS_SERVER_…`)");
    let written = format!("{head}{without}{with}");
    if std::env::var("PILOTHOUSE_STOCK").as_deref() == Ok("update") {
        fs::write(path("stock-envoy.md"), &written).unwrap();
    }
    let known = fs::read_to_string(path("stock-envoy.md")).unwrap_or_default();
    let new: Vec<&str> = written.lines().filter(|line| !known.lines().any(|k| k == *line)).collect();
    assert!(
        known == written,
        "stock mode differs from the reviewed page (PILOTHOUSE_STOCK=update writes it):\n{}",
        new.join("\n")
    );
}
