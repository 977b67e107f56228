//! A running pilothouse on a folder, whose content a test changes, and the knowledge when a change is in force everywhere.

use std::{
    fs,
    path::Path,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use pilothouse::{
    app,
    discovery::{Connection, XdsState},
    model::{ConfigSnapshot, Features, Mesh, Origin, PushInputs},
    push::PushContext,
    registry::ServiceEntryStore,
    runtime::{Shutdown, block_on},
    settings::{AdminSettings, ListenAddress, Settings, SourceSettings, XdsSettings},
    sources::file::load,
    translate::Translation,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::DEADLINE;

/// The process, started inside the test on threads of its own.
pub struct App {
    pub grpc_port: u16,
    pub state: XdsState,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl App {
    pub fn start(settings: Settings) -> Self {
        let shutdown = Shutdown::default();
        let (sender, receiver) = mpsc::channel();
        let ending = shutdown.clone();
        let thread = std::thread::spawn(move || {
            let run = async {
                let running = app::build(settings, ending).await.unwrap();
                sender.send((running.addresses.grpc.port(), running.state.clone())).unwrap();
                running.wait().await.unwrap();
            };
            block_on(run).unwrap();
        });
        let (grpc_port, state) = receiver.recv().unwrap();
        Self { grpc_port, state, shutdown, thread: Some(thread) }
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.shutdown.begin();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The process on a folder.
pub struct Stage {
    folder: TempDir,
    pub app: App,
}

impl Stage {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sources = SourceSettings {
            config_dirs: vec![folder.path().to_path_buf()],
            settle: Duration::from_millis(5),
            deletion_hold: Duration::ZERO,
            ..SourceSettings::default()
        };
        let app = App::start(Settings { sources, ..settings() });
        Self { folder, app }
    }

    /// Writes the content, all of it, and waits until it is in force. The statuses and the registry have to become those of a
    /// cold translation of the same content.
    pub async fn apply(&self, documents: &[Value]) {
        let text: String = documents.iter().map(|d| format!("---\n{d}\n")).collect();
        let path = self.folder.path().join("all.yaml");
        fs::write(path.with_extension("new"), text).unwrap();
        fs::rename(path.with_extension("new"), &path).unwrap();
        let (translation, services) = cold(self.folder.path());
        let same = |context: &PushContext| {
            context.translation.statuses == translation.statuses && fingerprint(context) == services
        };
        let here = || self.app.state.current().is_some_and(|p| same(&p.context));
        wait(|| "the content is in force".to_string(), here).await;
    }

    /// Waits until every connected proxy holds the content in force.
    pub async fn until_held(&self, proxies: usize) {
        let told = || {
            let connections = self.app.state.connections();
            let rows =
                connections.iter().map(|c| format!("{} holds {} and watches {:?}", c.id, c.held_version(), watched(c)));
            let version = self.app.state.current().map(|p| p.version);
            format!(
                "{proxies} proxies hold {version:?}, propagated {}: {:#?}",
                self.app.state.propagated_version(),
                rows.collect::<Vec<_>>()
            )
        };
        let held = || {
            let version = self.app.state.current().map_or(u64::MAX, |p| p.version);
            let connections = self.app.state.connections();
            connections.len() == proxies
                && self.app.state.propagated_version() >= version
                && connections.iter().all(|c| c.held_version() >= version)
        };
        wait(told, held).await;
    }

    /// The refusals of the proxies.
    pub fn refused(&self) -> Vec<String> {
        let connections = self.app.state.connections();
        let kinds = |c: &Arc<Connection>| {
            let of = |kind| (c.status(kind).rejects > 0).then(|| format!("{} {}", c.id, c.status(kind).last_error));
            c.served().iter().filter_map(of).collect::<Vec<_>>()
        };
        connections.iter().flat_map(kinds).collect()
    }
}

/// The types that a client watches, each with the publications that it was offered and that it holds.
fn watched(connection: &Connection) -> Vec<(&'static str, u64, u64)> {
    let types = connection.served().iter().map(|kind| (kind.label(), connection.status(kind)));
    types.filter(|(_, s)| s.watched).map(|(label, s)| (label, s.offered, s.held)).collect()
}

async fn wait(what: impl Fn() -> String, check: impl Fn() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < DEADLINE, "waited in vain: {}", what());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// On free ports, with pauses that suit tests.
pub fn settings() -> Settings {
    Settings {
        xds: XdsSettings { grpc_address: ListenAddress::loopback(0), ..XdsSettings::default() },
        admin: AdminSettings {
            http_address: ListenAddress::loopback(0),
            monitoring_address: None,
            ..AdminSettings::default()
        },
        features: Features { debounce_after: Duration::from_millis(10), ..Features::default() },
        ..Settings::default()
    }
}

/// A run that begins now: the translated Gateway API objects, and all services.
fn cold(folder: &Path) -> (Translation, Vec<(String, u64)>) {
    let loaded = load(folder, &Origin::default(), 64 << 20);
    assert!(loaded.findings.refused.is_empty(), "{:?}", loaded.findings.refused);
    let (mesh, features) = (Arc::new(Mesh::default()), Arc::new(Features::default()));
    let configs = ConfigSnapshot::of(loaded.configs);
    let registry = ServiceEntryStore::of(mesh.clone(), features.clone(), &configs).snapshot();
    let services = registry.services.iter().map(|s| (s.hostname.to_string(), s.stamp)).collect();
    (Translation::build(PushInputs { mesh, features, configs, registry, ..PushInputs::default() }), services)
}

fn fingerprint(context: &PushContext) -> Vec<(String, u64)> {
    context.inputs.registry.services.iter().map(|s| (s.hostname.to_string(), s.stamp)).collect()
}
