//! Mesh-wide settings from files: read at the start, read again when a file changes, the last good ones kept.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures::future::BoxFuture;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Findings, FindingsLog, Refused, Source, SourceId, SourcePort, SourceState, Warned,
    file::{
        disk::{Disk, Follow},
        parse::is_blank,
        read::{ReadError, Stat},
        settle::Work,
        watch::{Watched, Watcher},
        writing::Writing,
    },
    yaml::{self, Outline},
};
use crate::{
    model::{Interrupted, Mesh, MeshError},
    runtime::catch,
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
/// A text that names the flag, the file and the field.
pub fn read_mesh(settings: &MeshSettings, max_file_bytes: u64) -> Result<Mesh, String> {
    check_mesh(settings, max_file_bytes)
        .map(|(mesh, _)| mesh)
        .map_err(|refused| format!("{}{refused}", flag(settings, Path::new(&refused.file))))
}

/// Reads the mesh settings, with their warnings.
///
/// # Errors
/// The file at fault.
pub fn check_mesh(settings: &MeshSettings, max_file_bytes: u64) -> Result<(Mesh, Vec<Warned>), Box<Refused>> {
    let mut texts = HashMap::new();
    for path in [&settings.config_file, &settings.networks_file].into_iter().flatten() {
        let (text, _) = text_of(&Disk::default(), path, max_file_bytes)
            .map_err(|e| Box::new(refused(settings, path, (0, 0), e.to_string())))?;
        texts.insert(path.clone(), text);
    }
    let values = Values::read(settings, &texts)?;
    let mesh = values.mesh(settings, &texts)?;
    let warnings = values.warnings(settings, &mesh, &texts);
    Ok((mesh, warnings))
}

/// A file of mesh settings that is refused, by line and column.
fn refused(settings: &MeshSettings, path: &Path, (line, column): (u32, u32), reason: String) -> Refused {
    let networks = settings.config_file.as_deref() != Some(path);
    Refused {
        file: path.display().to_string(),
        line,
        column,
        kind: if networks { "MeshNetworks" } else { "MeshConfig" }.to_string(),
        namespace: String::new(),
        name: String::new(),
        reason,
    }
}

/// The flag that names this file.
fn flag(settings: &MeshSettings, path: &Path) -> &'static str {
    if settings.config_file.as_deref() == Some(path) { "--mesh-config " } else { "--networks-config " }
}

fn text_of(disk: &Disk, path: &Path, max_file_bytes: u64) -> Result<(String, Stat), ReadError> {
    let read = disk.read(&mut vec![Arc::new(path.to_path_buf())], Follow::Yes, max_file_bytes).pop();
    read.map_or(Err(ReadError::NoAnswer), |(_, result)| result)
}

/// The documents of the files, as written.
struct Values {
    config: Value,
    networks: Value,
}

impl Values {
    fn read(settings: &MeshSettings, texts: &HashMap<PathBuf, String>) -> Result<Self, Box<Refused>> {
        let of = |path: &Option<PathBuf>| match path.as_ref().and_then(|p| Some((p, texts.get(p)?))) {
            Some((path, text)) => {
                document(text).map_err(|(place, reason)| Box::new(refused(settings, path, place, reason)))
            }
            None => Ok(Value::Null),
        };
        Ok(Self { config: of(&settings.config_file)?, networks: of(&settings.networks_file)? })
    }

    fn mesh(&self, settings: &MeshSettings, texts: &HashMap<PathBuf, String>) -> Result<Mesh, Box<Refused>> {
        Mesh::validated(&self.config, &self.networks, &settings.domain, &settings.cluster_id).map_err(|error| {
            let (file, reason) = match error {
                MeshError::Config(reason) => (&settings.config_file, reason),
                MeshError::Networks(reason) => (&settings.networks_file, reason),
            };
            let file = file.as_deref().unwrap_or(Path::new(""));
            let place = texts.get(file).and_then(|text| Places::of(text)?.of_field(&reason));
            Box::new(refused(settings, file, place.unwrap_or_default(), reason))
        })
    }

    /// Fields that mesh settings do not have, and settings of `mesh` that are probably mistakes.
    fn warnings(&self, settings: &MeshSettings, mesh: &Mesh, texts: &HashMap<PathBuf, String>) -> Vec<Warned> {
        let unknown = |kind, value| Mesh::unknown_fields(kind, value).into_iter().map(|f| format!("unknown field {f}"));
        let of_config = unknown("MeshConfig", &self.config).chain(mesh.warnings()).collect::<Vec<_>>();
        let of_networks = unknown("MeshNetworks", &self.networks).collect();
        let files =
            [(&settings.config_file, "MeshConfig", of_config), (&settings.networks_file, "MeshNetworks", of_networks)];
        let mut warnings = Vec::new();
        for (path, kind, texts_of_warnings) in files {
            let Some(path) = path.as_ref().filter(|_| !texts_of_warnings.is_empty()) else { continue };
            let places = texts.get(path).and_then(|text| Places::of(text));
            warnings.extend(texts_of_warnings.into_iter().map(|warning| {
                let place = places.as_ref().and_then(|places| places.of_field(&by_index(&warning, &self.config)));
                let (line, column) = place.unwrap_or_default();
                Warned {
                    file: path.display().to_string(),
                    line,
                    column,
                    kind: kind.to_string(),
                    namespace: String::new(),
                    name: String::new(),
                    warning,
                }
            }));
        }
        warnings
    }
}

/// Lines and columns of the fields of a file.
struct Places {
    /// Line on which the document begins, from 1.
    first: u32,
    outline: Outline,
}

impl Places {
    fn of(text: &str) -> Option<Self> {
        let chunk = yaml::documents(text).first().copied()?;
        Some(Self { first: chunk.line, outline: Outline::of(chunk.text)? })
    }

    /// The line and the column of the field that the text begins with, both from 1.
    fn of_field(&self, text: &str) -> Option<(u32, u32)> {
        let place = self.outline.place_of(text)?;
        Some((self.first + place.line.saturating_sub(1), place.column))
    }
}

/// A text about an extension provider with the provider's place in the document instead of its name.
fn by_index<'t>(text: &'t str, config: &Value) -> Cow<'t, str> {
    let named = |&(name, rest): &(&str, &str)| {
        let providers = config.get("extensionProviders")?.as_array()?;
        let index = providers.iter().position(|provider| provider.get("name").and_then(Value::as_str) == Some(name))?;
        Some(format!("extensionProviders[{index}]{rest}").into())
    };
    let of_provider = text.strip_prefix("extensionProviders[").and_then(|rest| rest.split_once(']'));
    of_provider.as_ref().and_then(named).unwrap_or(Cow::Borrowed(text))
}

/// The first document of a file; `Null` for an empty one. An error has its line and column.
fn document(text: &str) -> Result<Value, ((u32, u32), String)> {
    let Some(chunk) = yaml::documents(text).first().copied() else { return Ok(Value::Null) };
    let values = yaml::values(chunk.text).map_err(|e| ((chunk.line + e.line.saturating_sub(1), e.column), e.reason))?;
    let value = values.into_iter().next().unwrap_or(Value::Null);
    if value.is_object() || value.is_null() {
        Ok(value)
    } else {
        Err(((chunk.line, 1), "it is not an object".to_string()))
    }
}

/// The files as a source.
pub struct MeshSource {
    mesh: MeshSettings,
    settings: SourceSettings,
    sink: Arc<dyn MeshSink>,
    current: Arc<parking_lot::Mutex<u64>>,
}

impl MeshSource {
    /// The files as a source; `current` are the settings that are in force already.
    #[must_use]
    pub fn new(mesh: MeshSettings, settings: SourceSettings, sink: Arc<dyn MeshSink>, current: &Mesh) -> Self {
        Self { mesh, settings, sink, current: Arc::new(parking_lot::Mutex::new(current.stamp)) }
    }
}

impl Source for MeshSource {
    fn id(&self) -> SourceId {
        "mesh".into()
    }

    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>> {
        let events = self.settings.watch == WatchMode::Events;
        let (watcher, watched) = Watcher::new(events, self.settings.settle);
        let files = Files {
            settings: self.mesh.clone(),
            max_file_bytes: self.settings.max_file_bytes,
            disk: Disk::default(),
            watched,
            log: FindingsLog::new(self.id()),
            seen: HashMap::new(),
            writing: Writing::default(),
            current: self.current.clone(),
        };
        let run = Run {
            files: Some(files),
            watcher: watcher.any_name(),
            pause: if events { self.settings.rescan } else { Duration::from_secs(1) },
            sink: self.sink.clone(),
            current: self.current.clone(),
            port,
        };
        Box::pin(run.run())
    }
}

/// A file as it was last in force.
#[derive(Debug, Clone, Copy)]
struct Seen {
    hash: u64,
    stat: Stat,
    blank: bool,
}

/// The files as they were read last. Its calls block.
struct Files {
    settings: MeshSettings,
    max_file_bytes: u64,
    disk: Disk,
    watched: Watched,
    log: FindingsLog,
    seen: HashMap<Arc<PathBuf>, Seen>,
    writing: Writing,
    /// The stamp of the settings in force.
    current: Arc<parking_lot::Mutex<u64>>,
}

impl Files {
    fn paths(&self) -> Vec<PathBuf> {
        [&self.settings.config_file, &self.settings.networks_file].into_iter().flatten().cloned().collect()
    }

    /// Reads the files; `None` while one of them is being written.
    fn look(&mut self, work: &Work) -> Result<Option<Mesh>, String> {
        let (mut texts, mut seen, mut emptied) = (HashMap::new(), HashMap::new(), None);
        for path in self.paths() {
            let (text, stat) = text_of(&self.disk, &path, self.max_file_bytes)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            let (key, now) = (Arc::new(path.clone()), Instant::now());
            let found = Seen { hash: xxh3_64(text.as_bytes()), stat, blank: is_blank(&text) };
            let before = self.seen.get(&key);
            let in_place = before.is_some_and(|b| b.hash != found.hash && b.stat.id() == stat.id());
            if in_place && !was_closed(&path, &work.closed) && self.writing.goes_on(&key, stat, false, now) {
                return Ok(None);
            }
            self.writing.end(&key);
            if found.blank && before.is_none_or(|b| !b.blank) {
                emptied = Some(path.clone());
            }
            seen.insert(key, found);
            texts.insert(path, text);
        }
        if self.watched.set(&self.folders()) {
            // The folders are watched only from now on.
            return self.look(&Work::everything());
        }
        let values = Values::read(&self.settings, &texts).map_err(|refused| refused.to_string())?;
        let mesh = values.mesh(&self.settings, &texts).map_err(|refused| refused.to_string())?;
        let current = *self.current.lock();
        if let Some(path) = emptied.filter(|_| current != mesh.stamp) {
            return Err(format!("{}: the file is empty; write {{}} for the default settings", path.display()));
        }
        self.seen = seen;
        self.log.log(Findings { warned: values.warnings(&self.settings, &mesh, &texts), ..Findings::default() });
        Ok(Some(mesh))
    }

    /// The folders of the files, and of the targets of their links.
    fn folders(&self) -> BTreeMap<PathBuf, (u64, u64)> {
        let mut folders = BTreeMap::new();
        for file in self.paths() {
            let near = file.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
            let real = fs::canonicalize(&file).ok();
            for folder in near.into_iter().chain(real.as_deref().and_then(Path::parent)) {
                let Ok(folder) = fs::canonicalize(folder) else { continue };
                if let Ok(meta) = fs::metadata(&folder) {
                    folders.insert(folder, (meta.dev(), meta.ino()));
                }
            }
        }
        folders
    }
}

/// Whether a file is among those that were closed after writing, which are known by their real folders.
fn was_closed(path: &Path, closed: &BTreeSet<PathBuf>) -> bool {
    let near = path.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    let named =
        near.and_then(|p| fs::canonicalize(p).ok()).zip(path.file_name()).map(|(folder, name)| folder.join(name));
    let real = fs::canonicalize(path).ok();
    named.into_iter().chain(real).any(|path| closed.contains(&path))
}

struct Run {
    /// Taken out while a blocking thread works on them.
    files: Option<Files>,
    watcher: Watcher,
    pause: Duration,
    sink: Arc<dyn MeshSink>,
    current: Arc<parking_lot::Mutex<u64>>,
    port: SourcePort,
}

impl Run {
    async fn run(mut self) -> anyhow::Result<()> {
        let (mut work, mut resend, mut looked) = (Work::everything(), false, Instant::now());
        loop {
            self.look(work, resend).await?;
            let due = self.files.as_ref().and_then(|files| files.writing.next_due());
            // Events that never end do not put the next look off.
            let at = due.into_iter().fold(looked + self.pause, Instant::min).max(Instant::now());
            (work, resend) = tokio::select! {
                biased;
                () = self.port.stop.cancelled() => return Ok(()),
                () = self.port.resync.notified() => (Work::everything(), true),
                () = tokio::time::sleep_until(at.into()) => (Work::everything(), false),
                work = self.watcher.next() => (work, false),
            };
            if at <= Instant::now() {
                looked = Instant::now();
            }
        }
    }

    async fn look(&mut self, work: Work, resend: bool) -> anyhow::Result<()> {
        let mut files = self.files.take().context("the files were lost in a fault")?;
        let (files, read) = tokio::task::spawn_blocking(move || {
            catch(|| {
                let read = files.look(&work);
                (files, read)
            })
        })
        .await??;
        let findings = files.log.last().clone();
        self.files = Some(files);
        let error = match read {
            Ok(Some(mesh)) => self.hand_over(mesh, resend).await.err().map(|e| e.to_string()),
            Ok(None) => None,
            Err(error) => Some(format!("{error}; the last good settings stay")),
        };
        self.port.board.write(|r| {
            r.objects = 1;
            r.state = if error.is_some() { SourceState::Stale } else { SourceState::Synced };
            let text = error.unwrap_or_default();
            if r.last_error != text && !text.is_empty() {
                tracing::warn!(source = "mesh", "{text}");
            }
            r.last_error = text;
            r.findings = findings;
        });
        self.port.board.beat();
        Ok(())
    }

    async fn hand_over(&self, mesh: Mesh, resend: bool) -> Result<(), Interrupted> {
        let stamp = mesh.stamp;
        let current = || self.current.lock();
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
        assert!(read("a: 1\na: 2\n").unwrap_err().contains("mesh.yaml:2:1: MeshConfig refused: duplicate"));
        assert!(read("rootNamespace: [1]\n").unwrap_err().contains("mesh.yaml"));
        assert!(read("[]").unwrap_err().contains("not an object"));
        let wrong = read("# mesh\nrootNamespace: a\ndefaultConfig:\n  statusPort: 0\n").unwrap_err();
        assert!(wrong.contains("mesh.yaml:4:3: MeshConfig refused: defaultConfig.statusPort: "), "{wrong}");
        let wrong = read("trustDomain: a_b\nconnectTimeout: 2h\n").unwrap_err();
        assert!(wrong.contains("trustDomain: ") && wrong.contains("connectTimeout: "), "{wrong}");
    }
}
