//! Mesh-wide settings from files: read at the start, read again when a file changes, the last good ones kept.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::BoxFuture;
use serde_json::Value;

use super::{
    Source, SourceId, SourcePort, SourceState,
    file::{
        scan::{ReadError, read},
        watch::Watcher,
    },
    yaml,
};
use crate::{
    model::Mesh,
    runtime::Interrupted,
    settings::{MeshSettings, SourceSettings, WatchMode},
};

/// Takes new mesh settings.
pub trait MeshSink: Send + Sync + 'static {
    /// Hands them over. The reply comes when they are in force.
    fn apply(&self, mesh: Arc<Mesh>) -> BoxFuture<'static, Result<(), Interrupted>>;
}

/// Reads the mesh settings.
///
/// # Errors
/// A text that names the file and the field.
pub fn read_mesh(settings: &MeshSettings, max_file_bytes: u64) -> Result<Mesh, String> {
    let of = |flag: &'static str, path: &Option<PathBuf>| {
        document(path.as_deref(), max_file_bytes).map_err(|error| format!("{flag} {error}"))
    };
    let config = of("--mesh-config", &settings.config_file)?;
    let networks = of("--networks-config", &settings.networks_file)?;
    Mesh::from_values(&config, &networks, &settings.domain, &settings.cluster_id).map_err(|error| {
        let files = [&settings.config_file, &settings.networks_file];
        let names: Vec<String> = files.into_iter().flatten().map(|p| p.display().to_string()).collect();
        format!("{}: {error}", names.join(", "))
    })
}

/// The first document of a file; `Null` for an empty one or none.
fn document(path: Option<&Path>, max_file_bytes: u64) -> Result<Value, String> {
    let Some(path) = path else { return Ok(Value::Null) };
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let (text, _) = read(path, max_file_bytes).map_err(|e: ReadError| at(&e))?;
    let Some(chunk) = yaml::documents(&text).first().copied() else { return Ok(Value::Null) };
    let values = yaml::values(chunk.text).map_err(|e| {
        format!("{}:{}:{}: {}", path.display(), chunk.line + e.line.saturating_sub(1), e.column, e.reason)
    })?;
    let value = values.into_iter().next().unwrap_or(Value::Null);
    if value.is_object() || value.is_null() { Ok(value) } else { Err(at(&"it is not an object")) }
}

/// The files as a source.
pub struct MeshSource {
    mesh: MeshSettings,
    settings: SourceSettings,
    sink: Arc<dyn MeshSink>,
    current: Arc<std::sync::Mutex<u64>>,
}

impl MeshSource {
    /// The files as a source; `current` are the settings that are in force already.
    #[must_use]
    pub fn new(mesh: MeshSettings, settings: SourceSettings, sink: Arc<dyn MeshSink>, current: &Mesh) -> Self {
        Self { mesh, settings, sink, current: Arc::new(std::sync::Mutex::new(current.stamp)) }
    }
}

impl Source for MeshSource {
    fn id(&self) -> SourceId {
        "mesh".into()
    }

    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>> {
        let run = Run {
            mesh: self.mesh.clone(),
            settings: self.settings.clone(),
            sink: self.sink.clone(),
            current: self.current.clone(),
            port,
        };
        Box::pin(run.run())
    }
}

struct Run {
    mesh: MeshSettings,
    settings: SourceSettings,
    sink: Arc<dyn MeshSink>,
    current: Arc<std::sync::Mutex<u64>>,
    port: SourcePort,
}

impl Run {
    async fn run(self) -> anyhow::Result<()> {
        let events = self.settings.watch == WatchMode::Events;
        let pause = if events { self.settings.rescan } else { std::time::Duration::from_secs(1) };
        let mut watcher = Watcher::new(events, self.settings.settle).any_name();
        let mut resend = false;
        loop {
            watcher.set(&self.folders());
            self.look(resend).await;
            resend = tokio::select! {
                biased;
                () = self.port.stop.cancelled() => return Ok(()),
                () = self.port.resync.notified() => true,
                _ = watcher.next() => false,
                () = tokio::time::sleep(pause) => false,
            };
        }
    }

    /// The folders of the files, and of what they link to.
    fn folders(&self) -> BTreeSet<PathBuf> {
        let files = [&self.mesh.config_file, &self.mesh.networks_file];
        let mut folders = BTreeSet::new();
        for file in files.into_iter().flatten() {
            let near = file.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
            let real = fs::canonicalize(file).ok();
            for folder in near.into_iter().chain(real.as_deref().and_then(Path::parent)) {
                folders.extend(fs::canonicalize(folder).ok());
            }
        }
        folders
    }

    async fn look(&self, resend: bool) {
        let (settings, limit) = (self.mesh.clone(), self.settings.max_file_bytes);
        let read = tokio::task::spawn_blocking(move || read_mesh(&settings, limit)).await;
        let error = match read {
            Ok(Ok(mesh)) => self.hand_over(mesh, resend).await.err().map(|e| e.to_string()),
            Ok(Err(error)) => Some(format!("{error}; the last good settings stay")),
            Err(error) => Some(error.to_string()),
        };
        self.port.board.write(|r| {
            r.objects = 1;
            r.state = if error.is_some() { SourceState::Stale } else { SourceState::Synced };
            let text = error.unwrap_or_default();
            if r.last_error != text && !text.is_empty() {
                tracing::warn!(source = "mesh", "{text}");
            }
            r.last_error = text;
        });
        self.port.board.beat();
    }

    async fn hand_over(&self, mesh: Mesh, resend: bool) -> Result<(), Interrupted> {
        let stamp = mesh.stamp;
        let current = || self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *current() == stamp && !resend {
            return Ok(());
        }
        self.sink.apply(Arc::new(mesh)).await?;
        *current() = stamp;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file_and_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mesh.yaml");
        let settings = MeshSettings { config_file: Some(path.clone()), ..MeshSettings::default() };
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            read_mesh(&settings, 1000)
        };
        assert_eq!(read("# nothing\n").unwrap(), Mesh::default());
        assert_eq!(read("rootNamespace: other\n").unwrap().config.root_namespace, "other");
        assert!(read("a: 1\na: 2\n").unwrap_err().contains("mesh.yaml:2:1: duplicate"));
        assert!(read("rootNamespace: [1]\n").unwrap_err().contains("mesh.yaml"));
        assert!(read("[]").unwrap_err().contains("not an object"));
    }
}
