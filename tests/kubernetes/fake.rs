//! An API server that keeps objects, lists and watches them, and fails when it is told to.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::AbortHandle};

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Which requests a fault meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Lists of this plural; pages after the first too.
    List(&'static str),
    /// Second and later pages of lists of this plural.
    NextPage(&'static str),
    /// Watches of this plural.
    Watch(&'static str),
}

/// The end of a chunked body.
#[derive(Debug, Clone, Copy)]
pub enum Ending {
    /// As it should.
    Clean,
    /// The connection breaks.
    Cut,
    /// Never.
    Never,
}

/// The answer in place of the real one.
#[derive(Debug, Clone)]
pub enum Fault {
    /// This status and text; with these headers.
    Status(u16, &'static str, Vec<(&'static str, &'static str)>),
    /// Nothing, for ever.
    Silence,
    /// A success with these pieces, each after a pause.
    Pieces(Vec<(Duration, String)>, Ending),
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub at: Instant,
    pub verb: &'static str,
    pub path: String,
    pub query: String,
}

#[derive(Default)]
struct State {
    version: u64,
    /// Versions up to this one are forgotten.
    oldest: u64,
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    history: Vec<(u64, String, &'static str, Value)>,
    faults: Vec<(When, Fault, usize)>,
    seen: Vec<Seen>,
    /// The token that every request must bring.
    token: Option<String>,
    /// Watches from a version that is not there yet are accepted, as the watch cache of a real server does.
    accepts_future: bool,
    /// Kinds without objects that discovery names.
    served: Vec<&'static str>,
}

/// The server.
#[derive(Clone)]
pub struct Fake {
    pub url: String,
    state: Arc<Mutex<State>>,
    version: watch::Sender<u64>,
    connections: Arc<Mutex<VecDeque<AbortHandle>>>,
}

impl Fake {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            state: Arc::new(Mutex::new(State { version: 100, ..State::default() })),
            version: watch::Sender::new(100),
            connections: Arc::default(),
        };
        fake.serve(listener);
        fake
    }

    fn serve(&self, listener: TcpListener) {
        let fake = self.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let server = fake.clone();
                let service = service_fn(move |request| {
                    let server = server.clone();
                    async move { Ok::<_, Infallible>(server.answer(&request).await) }
                });
                let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service);
                let task = tokio::spawn(async move { drop(connection.await) });
                fake.connections.lock().unwrap().push_back(task.abort_handle());
            }
        });
        self.connections.lock().unwrap().push_front(accepting.abort_handle());
    }

    /// Breaks every connection and refuses new ones.
    pub fn stop(&self) {
        self.connections.lock().unwrap().drain(..).for_each(|task| task.abort());
    }

    /// Listens again.
    pub async fn resume(&self) {
        let address = self.url.trim_start_matches("http://").to_string();
        let listener = loop {
            match TcpListener::bind(&address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        self.serve(listener);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        state.version += 1;
        change(&mut state);
        let version = state.version;
        drop(state);
        self.version.send_replace(version);
    }

    /// Creates or changes an object; `object` is all but its metadata.
    pub fn put(&self, plural: &str, namespace: &str, name: &str, object: Value) {
        self.put_raw(plural, &format!("{namespace}/{name}"), |version| {
            let mut object = object.clone();
            object["metadata"] = json!({"name": name, "namespace": namespace, "resourceVersion": version.to_string()});
            object
        });
    }

    /// Creates or changes an object of any form. `plural` may be `group/plural`, for plurals that several groups have.
    pub fn put_raw(&self, plural: &str, key: &str, object: impl FnOnce(u64) -> Value) {
        self.change(|state| {
            let object = object(state.version);
            let kind =
                if state.objects.get(plural).is_some_and(|o| o.contains_key(key)) { "MODIFIED" } else { "ADDED" };
            state.objects.entry(plural.to_string()).or_default().insert(key.to_string(), object.clone());
            state.history.push((state.version, plural.to_string(), kind, object));
        });
    }

    /// Deletes an object.
    pub fn delete(&self, plural: &str, key: &str) {
        self.change(|state| {
            let Some(mut object) = state.objects.get_mut(plural).and_then(|o| o.remove(key)) else { return };
            object["metadata"]["resourceVersion"] = state.version.to_string().into();
            state.history.push((state.version, plural.to_string(), "DELETED", object));
        });
    }

    /// Drops the history: watches from before now are refused as expired.
    pub fn compact(&self) {
        let mut state = self.lock();
        state.history.clear();
        state.oldest = state.version;
    }

    /// The content of a backup.
    pub fn backup(&self) -> BTreeMap<String, BTreeMap<String, Value>> {
        self.lock().objects.clone()
    }

    /// Restores a backup: objects and versions go back, and every connection ends.
    pub fn restore(&self, backup: BTreeMap<String, BTreeMap<String, Value>>, version: u64) {
        let mut state = self.lock();
        (state.objects, state.version, state.oldest) = (backup, version, version);
        state.history.clear();
        drop(state);
        self.connections.lock().unwrap().drain(1..).for_each(|task| task.abort());
        self.version.send_replace(version);
    }

    /// From now on watches from a version that is not there yet are accepted and stay silent.
    pub fn accept_the_future(&self) {
        self.lock().accepts_future = true;
    }

    /// Discovery names this kind also while there is no object of it.
    pub fn serve_kind(&self, plural: &'static str) {
        self.lock().served.push(plural);
    }

    /// The next `times` requests of this kind meet this fault.
    pub fn fail(&self, when: When, fault: Fault, times: usize) {
        self.lock().faults.push((when, fault, times));
    }

    /// From now on only requests with this token are answered; watches end.
    pub fn demand(&self, token: &str) {
        self.lock().token = Some(token.to_string());
        self.connections.lock().unwrap().drain(1..).for_each(|task| task.abort());
    }

    /// No more faults.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// Requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.lock().seen.clone()
    }

    /// When objects of this plural were listed (first pages) or watched.
    pub fn times(&self, verb: &str, plural: &str) -> Vec<Instant> {
        let first = |s: &Seen| verb != "list" || !s.query.contains("continue=");
        let meant = |s: &&Seen| s.verb == verb && s.path.ends_with(&format!("/{plural}")) && first(s);
        self.seen().iter().filter(meant).map(|s| s.at).collect()
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        let (path, query) = (request.uri().path().to_string(), request.uri().query().unwrap_or_default().to_string());
        let plural = path.rsplit('/').next().unwrap_or_default().to_string();
        let names = names(&path);
        let watched = query.contains("watch=true");
        let single = path.contains("/customresourcedefinitions/");
        let discovery = path.starts_with("/apis/") && path.split('/').count() == 4;
        let verb = if watched {
            "watch"
        } else if discovery {
            "discovery"
        } else if query.contains("limit=1&") {
            "probe"
        } else if single {
            "get"
        } else {
            "list"
        };
        let fault = {
            let mut state = self.lock();
            state.seen.push(Seen { at: Instant::now(), verb, path: path.clone(), query: query.clone() });
            let brought = request.headers().get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
            if state.token.as_ref().is_some_and(|token| brought != format!("Bearer {token}")) {
                return status(401, "Unauthorized");
            }
            if verb == "probe" { None } else { state.fault(&plural, watched, query.contains("continue=")) }
        };
        match fault {
            Some(Fault::Silence) => std::future::pending().await,
            Some(Fault::Status(code, text, headers)) => {
                let builder = headers.into_iter().fold(Response::builder().status(code), |b, (k, v)| b.header(k, v));
                builder.body(full(text.to_string())).unwrap()
            }
            Some(Fault::Pieces(pieces, ending)) => Response::new(in_pieces(pieces, ending)),
            None if single => status(404, "not found"),
            None if discovery => Response::new(full(self.discover().to_string())),
            None if watched => self.watch(names, &query),
            None => match self.too_new(&query) {
                Some((from, now)) => status(504, &format!("Too large resource version: {from}, current: {now}")),
                None => Response::new(full(self.list(&names, &query).to_string())),
            },
        }
    }

    /// The version that is asked for and the current one, when the first is not there yet.
    fn too_new(&self, query: &str) -> Option<(u64, u64)> {
        let from = parameter(query, "resourceVersion").and_then(|v| v.parse().ok())?;
        let now = self.lock().version;
        (from > now).then_some((from, now))
    }

    /// The kinds that are served, whatever their group.
    fn discover(&self) -> Value {
        let state = self.lock();
        let kept = state.objects.keys().map(|name| name.rsplit('/').next().unwrap_or(name));
        let names = kept.chain(state.served.iter().copied());
        let resources: Vec<Value> = names.map(|name| json!({"name": name, "verbs": ["list", "watch"]})).collect();
        json!({"kind": "APIResourceList", "apiVersion": "v1", "resources": resources})
    }

    fn list(&self, names: &[String], query: &str) -> Value {
        let state = self.lock();
        let number = |name: &str| parameter(query, name).and_then(|v| v.parse::<usize>().ok());
        let (skip, limit) = (number("continue").unwrap_or(0), number("limit").unwrap_or(usize::MAX));
        let all: Vec<&Value> =
            names.iter().filter_map(|name| state.objects.get(name)).flatten().map(|(_, o)| o).collect();
        let items: Vec<&Value> = all.iter().copied().skip(skip).take(limit).collect();
        let next = if skip + items.len() < all.len() { (skip + items.len()).to_string() } else { String::new() };
        json!({"kind": "List", "apiVersion": "v1",
            "metadata": {"resourceVersion": state.version.to_string(), "continue": next}, "items": items})
    }

    fn watch(&self, names: Vec<String>, query: &str) -> Response<Body> {
        let from: u64 = parameter(query, "resourceVersion").and_then(|v| v.parse().ok()).unwrap_or_default();
        let seconds: u64 = parameter(query, "timeoutSeconds").and_then(|v| v.parse().ok()).unwrap_or(60);
        let state = self.lock();
        if from > state.version && !state.accepts_future {
            return status(504, &format!("Too large resource version: {from}, current: {}", state.version));
        }
        if from < state.oldest {
            let gone = status_value(410, &format!("too old resource version: {from} ({})", state.oldest));
            return Response::new(full(line("ERROR", &gone)));
        }
        drop(state);
        let (server, end) = (self.clone(), tokio::time::Instant::now() + Duration::from_secs(seconds));
        let lines = stream::unfold((from, self.version.subscribe()), move |(from, mut version)| {
            let (server, names) = (server.clone(), names.clone());
            async move {
                loop {
                    let now = *version.borrow_and_update();
                    let text: String = server
                        .lock()
                        .history
                        .iter()
                        .filter(|(v, p, ..)| *v > from && *v <= now && names.contains(p))
                        .map(|(_, _, kind, object)| line(kind, object))
                        .collect();
                    if !text.is_empty() {
                        return Some((Ok(Frame::data(Bytes::from(text))), (now, version)));
                    }
                    if tokio::time::timeout_at(end, version.changed()).await.is_err() {
                        return None;
                    }
                }
            }
        });
        Response::new(stream_body(lines))
    }
}

impl State {
    fn fault(&mut self, plural: &str, watched: bool, next_page: bool) -> Option<Fault> {
        let meets = |when: &When| match when {
            When::List(p) => *p == plural && !watched,
            When::NextPage(p) => *p == plural && !watched && next_page,
            When::Watch(p) => *p == plural && watched,
        };
        let (_, fault, times) = self.faults.iter_mut().find(|(when, _, times)| *times > 0 && meets(when))?;
        *times -= 1;
        Some(fault.clone())
    }
}

/// The names under which a path's objects may be kept.
fn names(path: &str) -> Vec<String> {
    let parts: Vec<&str> = path.split('/').collect();
    let plural = parts.last().copied().unwrap_or_default();
    let group = parts.get(2).filter(|_| parts.get(1) == Some(&"apis"));
    std::iter::once(plural.to_string()).chain(group.map(|group| format!("{group}/{plural}"))).collect()
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='))
}

/// A line of a watch.
pub fn line(kind: &str, object: &Value) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// A status as the server writes it.
pub fn status_value(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code})
}

fn status(code: u16, message: &str) -> Response<Body> {
    Response::builder().status(code).body(full(status_value(code, message).to_string())).unwrap()
}

fn full(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

fn stream_body(frames: impl Stream<Item = Result<Frame<Bytes>, std::io::Error>> + Send + 'static) -> Body {
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

fn in_pieces(pieces: Vec<(Duration, String)>, ending: Ending) -> Body {
    let pieces = stream::iter(pieces).then(|(pause, text)| async move {
        tokio::time::sleep(pause).await;
        Ok(Frame::data(Bytes::from(text)))
    });
    match ending {
        Ending::Clean => stream_body(pieces),
        Ending::Cut => stream_body(pieces.chain(stream::iter([Err(std::io::Error::other("cut"))]))),
        Ending::Never => stream_body(pieces.chain(stream::pending())),
    }
}
