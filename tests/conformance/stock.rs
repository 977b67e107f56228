//! Every recorded Envoy proxy as a stock Envoy, that is, without `ISTIO_VERSION` in its metadata: a real Envoy loads what it is
//! sent, and what it is sent differs from Istio's form by what `stock-envoy.md` says.
//!
//! One Envoy loads all proxies, one after the other, over one ADS stream. Its listeners are not bound to ports, which belong to
//! the machine and not to the content. A refusal is an error unless `stock-refused.yaml` has its case with the reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use pilothouse::{
    discovery::Resources,
    generate::{cluster, listener},
    proto::{
        envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
        to_any, wkt,
    },
    testing::{ScriptedStream, ScriptedUpstream},
    xds::ResourceType,
};
use prost::Name;
use serde_json::{Value, json};

use crate::{
    data::{self, Case},
    envoy::Envoy,
    xds,
};

/// One of so many proxies is loaded by the oldest Envoy as well.
const SAMPLE: usize = 8;

type Stream = ScriptedStream<DiscoveryRequest, DiscoveryResponse>;

/// The recorded proxies that are Envoys.
fn proxies() -> Vec<Case> {
    xds::cases().into_iter().filter(xds::is_envoy).collect()
}

/// Resources of each type, by name.
#[derive(Default)]
struct Content(BTreeMap<ResourceType, BTreeMap<String, wkt::Any>>);

impl Content {
    fn add<M: Name>(&mut self, kind: ResourceType, messages: &[M], name: fn(&M) -> &String) {
        let named = messages.iter().map(|m| (name(m).clone(), to_any(m)));
        self.0.entry(kind).or_default().extend(named);
    }

    fn of(resources: &Resources) -> Self {
        let mut content = Self::default();
        let mut listeners = resources.listeners.clone();
        listeners.iter_mut().for_each(|l| l.bind_to_port = Some(false));
        content.add(ResourceType::Cluster, &resources.clusters, |c| &c.name);
        content.add(ResourceType::Endpoint, &resources.endpoints, |e| &e.cluster_name);
        content.add(ResourceType::Listener, &listeners, |l| &l.name);
        content.add(ResourceType::Route, &resources.routes, |r| &r.name);
        content.add(ResourceType::Secret, &resources.secrets, |s| &s.name);
        content
    }
}

/// One Envoy's stream.
struct Loader {
    stream: Stream,
    content: Content,
    asked: BTreeMap<ResourceType, BTreeSet<String>>,
    /// The nonce of the last response of a type.
    sent: BTreeMap<ResourceType, String>,
    answered: BTreeSet<ResourceType>,
    refused: Vec<String>,
    number: u64,
    /// It was waited for in vain.
    is_silent: bool,
}

impl Loader {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            content: Content::default(),
            asked: BTreeMap::new(),
            sent: BTreeMap::new(),
            answered: BTreeSet::new(),
            refused: Vec::new(),
            number: 0,
            is_silent: false,
        }
    }

    async fn send(&mut self, kind: ResourceType) {
        self.number += 1;
        let nonce = self.number.to_string();
        let all = self.content.0.get(&kind).cloned().unwrap_or_default();
        let asked = self.asked.get(&kind).cloned().unwrap_or_default();
        let wanted = all.into_iter().filter(|(name, _)| kind.is_wildcard() || asked.contains(name));
        self.answered.remove(&kind);
        self.sent.insert(kind, nonce.clone());
        let response = DiscoveryResponse {
            version_info: nonce.clone(),
            resources: wanted.map(|(_, any)| any).collect(),
            type_url: kind.url().to_string(),
            nonce,
            ..Default::default()
        };
        // A stream that is closed has no next request.
        let _ = self.stream.say(response).await;
    }

    /// Takes requests until `done`; names that are new are answered.
    async fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        while !done(self) {
            let Some(request) = self.stream.next().await else {
                self.is_silent = true;
                return Err(format!("Envoy does not {what}"));
            };
            let Some(kind) = ResourceType::of_url(&request.type_url) else { continue };
            let names: BTreeSet<String> = request.resource_names.into_iter().collect();
            let is_new = self.asked.get(&kind).is_none_or(|known| !names.is_subset(known));
            self.asked.insert(kind, names);
            if self.sent.get(&kind).is_some_and(|nonce| *nonce == request.response_nonce) {
                self.answered.insert(kind);
                let error = request.error_detail.map(|e| e.message);
                self.refused.extend(error.map(|e| format!("{}: {e}", kind.short())));
            }
            if is_new && !kind.is_wildcard() {
                self.send(kind).await;
            }
        }
        Ok(())
    }

    /// Sends a type and what it refers to, which Envoy may wait for before it answers: a cluster that is new under its old
    /// name asks for nothing new.
    async fn load(&mut self, kind: ResourceType, of: ResourceType, names: BTreeSet<String>) -> Result<(), String> {
        let before = self.refused.len();
        self.send(kind).await;
        for below in [of, ResourceType::Secret] {
            if self.asked.contains_key(&below) {
                self.send(below).await;
            }
        }
        self.until(&format!("answer {}", kind.short()), |l| l.answered.contains(&kind)).await?;
        if self.refused.len() > before {
            return Ok(());
        }
        let asked = |l: &Self| l.asked.get(&of).is_some_and(|asked| names.is_subset(asked)) && l.answered.contains(&of);
        let done = |l: &Self| names.is_empty() || asked(l);
        self.until(&format!("ask {} for {names:?} and answer", of.short()), done).await
    }

    /// Loads everything of a proxy; gives what was refused.
    async fn take(&mut self, resources: &Resources) -> Vec<String> {
        self.content = Content::of(resources);
        let all = async {
            let names = cluster::eds_cluster_names(&resources.clusters).into_iter().collect();
            self.load(ResourceType::Cluster, ResourceType::Endpoint, names).await?;
            let names = listener::route_names(&resources.listeners).into_iter().collect();
            self.load(ResourceType::Listener, ResourceType::Route, names).await
        };
        if let Err(error) = all.await {
            self.refused.push(error);
        }
        std::mem::take(&mut self.refused)
    }
}

/// Starts an Envoy and has it load these proxies; gives what it refused, by case.
async fn loaded(oldest: bool, cases: &[Case]) -> BTreeMap<String, Vec<String>> {
    let mut upstream = ScriptedUpstream::start(None).await.unwrap();
    let port = upstream.address.port();
    let (started, start) = tokio::sync::oneshot::channel();
    let (_done, until) = std::sync::mpsc::channel::<()>();
    // Envoy ends with the thread that started it.
    std::thread::spawn(move || {
        let node = "sidecar~127.0.0.1~stock.test~test.svc.cluster.local";
        let start = if oldest { Envoy::oldest } else { Envoy::connect };
        let _ = started.send(start(port, node, &json!({}), false));
        let _ = until.recv();
    });
    let mut stream = upstream.accept().await;
    for _ in 0..5 {
        stream = if stream.is_some() { stream } else { upstream.accept().await };
    }
    let mut loader = Loader::new(stream.expect("Envoy connects"));
    for kind in [ResourceType::Cluster, ResourceType::Listener] {
        loader.until("begin", |l| l.asked.contains_key(&kind)).await.unwrap();
        loader.load(kind, ResourceType::Endpoint, BTreeSet::new()).await.unwrap();
    }
    let envoy = start.await.unwrap();
    let mut refused = BTreeMap::new();
    for case in cases {
        let lines = loader.take(&xds::sent(case, xds::Mode::Stock)).await;
        let alive = !loader.is_silent;
        if !lines.is_empty() {
            refused.insert(case.id.clone(), lines);
        }
        assert!(alive, "{}: {:?}\n{}", case.id, refused[&case.id], envoy.process.tail());
    }
    refused
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(name)
}

/// Loads the proxies, and compares what is refused with what is known to be.
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

/// What stock mode changes: by place, how often and for how many proxies.
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
            let text = |v: &Value| if v.is_object() { format!("{path}[]") } else { format!("{path}[] {}", shown(v)) };
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

/// The table of what stock mode changes is the one that was looked at.
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
        "stock mode is not what was looked at (PILOTHOUSE_STOCK=update writes it):\n{}",
        new.join("\n")
    );
}
