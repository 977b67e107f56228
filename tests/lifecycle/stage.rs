//! Shared by the tests: the process started inside the test, and waiting for its publications.

use std::{fs, path::Path, sync::Arc, time::Duration};

use pilothouse::{
    app::{self, Running},
    push::PushContext,
    runtime::Shutdown,
    settings::{AdminSettings, ListenAddress, MeshSettings, RuntimeSettings, Settings, SourceSettings, XdsSettings},
};
use tempfile::TempDir;

use crate::proxy::Proxies;

/// The longest time that a condition in these tests may take to come true.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// A ServiceEntry of one static endpoint.
pub fn entry(name: &str, host: &str) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata:\n  name: {name}\n  namespace: shop\nspec:\n  hosts:\n  - {host}\n  ports:\n  - number: 80\n    name: http\n    protocol: HTTP\n  resolution: STATIC\n  endpoints:\n  - address: 10.0.0.1\n"
    )
}

/// A folder, the process that serves it, and two proxies that hold its content: one service `a` at first.
pub struct Served {
    dir: TempDir,
    /// The process.
    pub running: Running,
    /// Connected, one for each protocol.
    pub proxies: Proxies,
}

impl Served {
    /// Everything is up, and the proxies hold the first service.
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
        let running = start(&[dir.path()], None).await;
        until(&running, |c| !c.inputs.registry.services.is_empty()).await;
        let mut proxies = Proxies::connect(running.addresses.grpc).await;
        proxies.until("a.example").await;
        Self { dir, running, proxies }
    }

    /// Adds a service `NAME.example`.
    pub fn add(&self, name: &str) {
        fs::write(self.dir.path().join(format!("{name}.yaml")), entry(name, &format!("{name}.example"))).unwrap();
    }
}

/// Settings on free ports, with pauses that suit tests.
pub fn settings(folders: &[&Path], mesh: Option<&Path>) -> Settings {
    Settings {
        sources: SourceSettings {
            config_dirs: folders.iter().map(|p| p.to_path_buf()).collect(),
            ..SourceSettings::default()
        },
        mesh: MeshSettings { config_file: mesh.map(Path::to_path_buf), ..MeshSettings::default() },
        xds: XdsSettings { grpc_address: ListenAddress::loopback(0), ..XdsSettings::default() },
        admin: AdminSettings {
            http_address: ListenAddress::loopback(0),
            monitoring_address: None,
            ..AdminSettings::default()
        },
        runtime: RuntimeSettings { first_pause: Duration::from_millis(20), ..RuntimeSettings::default() },
        ..Settings::default()
    }
}

/// Starts the process in this one.
pub async fn start(folders: &[&Path], mesh: Option<&Path>) -> Running {
    app::build(settings(folders, mesh), Shutdown::default()).await.unwrap()
}

/// Waits until the context in force says this.
pub async fn until(running: &Running, says: impl Fn(&PushContext) -> bool) -> Arc<PushContext> {
    let wait = async {
        loop {
            if let Some(published) = running.state.current().filter(|p| says(&p.context)) {
                return published.context.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.expect("the context does not come to say it")
}

/// Hosts of all services, sorted.
pub fn hosts(context: &PushContext) -> Vec<String> {
    let mut hosts: Vec<String> = context.inputs.registry.services.iter().map(|s| s.hostname.to_string()).collect();
    hosts.sort();
    hosts
}

/// Ends it in good order.
pub async fn end(running: Running) {
    running.shutdown.begin();
    tokio::time::timeout(DEADLINE, running.wait()).await.unwrap().unwrap();
}

/// Waits until an actor was restarted so many times.
pub async fn restarted(running: &Running, actor: &str, times: u32) {
    let restarts = || running.supervision.reports().iter().find(|r| &*r.actor == actor).map(|r| r.restarts);
    assert!(restarts().is_some(), "no actor {actor}");
    let wait = async {
        while restarts() != Some(times) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, wait).await;
    assert!(waited.is_ok(), "{actor} was restarted {:?} times, not {times}", restarts());
}
