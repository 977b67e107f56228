//! Remote clusters that files name (Istio's `PILOT_MULTICLUSTER_KUBECONFIG_PATH`): a folder with kubeconfigs, each of the
//! cluster that its current context names. It is read instead of Secrets.
//!
//! Invariants: a folder or a file that cannot be read takes nothing away; a file that is empty is one that is being written;
//! the number of files and their length are bounded.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use kube::config::Kubeconfig;
use parking_lot::Mutex;

use super::{
    remote::{RemoteClusterSink, hand_over},
    wanted::{NamedBy, NamedClusters, wanted},
};
use crate::sources::{Findings, Source, SourceId, SourcePort, SourceState};

/// The interval at which the folder is read.
const LOOK: Duration = Duration::from_secs(2);
/// Files that are read.
const MOST_FILES: usize = 1000;
/// Bytes of a file that is read.
const LONGEST_FILE: u64 = 1 << 20;
/// Folders inside of folders.
const DEEPEST: usize = 8;

/// The kubeconfigs of a folder as a source.
#[derive(Clone)]
pub struct RemoteFiles {
    id: SourceId,
    root: PathBuf,
    main: Arc<str>,
    taken: Vec<String>,
    allowed: BTreeSet<String>,
    sink: Arc<dyn RemoteClusterSink>,
    files: Arc<Mutex<Files>>,
}

/// The clusters that the files named when they were last read, by path below the folder.
type Files = BTreeMap<String, NamedClusters>;

impl RemoteFiles {
    /// The source; `main` is the id of the main cluster, `taken` are ids of clusters that are followed for another reason,
    /// `allowed` are options of kubeconfigs that are not taken otherwise.
    #[must_use]
    pub fn new(
        root: &Path,
        main: Arc<str>,
        taken: Vec<String>,
        allowed: BTreeSet<String>,
        sink: Arc<dyn RemoteClusterSink>,
    ) -> Self {
        let id = format!("kube:{main}/remote-clusters").into();
        Self { id, root: root.to_path_buf(), main, taken, allowed, sink, files: Arc::default() }
    }
}

impl Source for RemoteFiles {
    fn id(&self) -> SourceId {
        self.id.clone()
    }

    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>> {
        Box::pin(Run { source: self.clone(), port }.run())
    }
}

struct Run {
    source: RemoteFiles,
    port: SourcePort,
}

impl Run {
    async fn run(self) -> anyhow::Result<()> {
        let mut last: Option<Files> = None;
        loop {
            let (root, before) = (self.source.root.clone(), self.files());
            match tokio::task::spawn_blocking(move || look(&root, &before)).await? {
                Ok(files) => {
                    if last.as_ref() != Some(&files) {
                        *self.source.files.lock() = files.clone();
                        self.hand_over(&files).await;
                        last = Some(files);
                    }
                    self.port.board.write(|r| {
                        r.state = SourceState::Synced;
                        r.last_error.clear();
                    });
                }
                Err(error) => self.show(&format!("{}: {error}", self.source.root.display())),
            }
            self.port.board.beat();
            tokio::select! {
                () = self.port.stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    fn files(&self) -> Files {
        self.source.files.lock().clone()
    }

    async fn hand_over(&self, files: &Files) {
        let named_by = NamedBy { source: &self.source.id, kind: "File", namespace: "" };
        let (wanted, refused) = wanted(files, &self.source.main, &self.source.taken, &self.source.allowed, named_by);
        let before = self.port.board.read().findings.refused.clone();
        for refusal in refused.iter().filter(|r| !before.contains(r)) {
            tracing::warn!(source = &*self.source.id, "{refusal}");
        }
        let clusters = wanted.len();
        // A hand-over may take long; the source lives meanwhile.
        let beat = async {
            loop {
                tokio::time::sleep(LOOK).await;
                self.port.board.beat();
            }
        };
        tokio::select! {
            () = self.port.stop.cancelled() => return,
            () = hand_over(&*self.source.sink, &wanted) => {}
            () = beat => {}
        }
        let findings = Arc::new(Findings { refused, ..Findings::default() });
        self.port.board.write(|r| (r.objects, r.findings) = (clusters, findings));
    }

    fn show(&self, error: &str) {
        self.port.board.write(|r| {
            if r.last_error != error {
                tracing::warn!(source = &*self.source.id, error, "kubeconfigs cannot be read; the clusters stay");
            }
            if r.state != SourceState::Starting {
                r.state = SourceState::Stale;
            }
            error.clone_into(&mut r.last_error);
        });
    }
}

/// Reads the folder. An empty file keeps its last content.
fn look(root: &Path, before: &Files) -> io::Result<Files> {
    let mut files = Files::new();
    let mut folders = vec![(root.to_path_buf(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            // A file that vanishes between the two calls is seen at the next look.
            let Ok(about) = fs::metadata(&path) else { continue };
            let hidden = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
            if about.is_dir() && depth < DEEPEST && !hidden {
                folders.push((path, depth + 1));
                continue;
            }
            let named = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
            if !about.is_file() || !named || hidden {
                continue;
            }
            if files.len() >= MOST_FILES {
                return Err(io::Error::other(format!("more than {MOST_FILES} files")));
            }
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            let named = match about.len() {
                0 => before.get(&name).cloned(),
                bytes if bytes > LONGEST_FILE => Some(refused(&name)),
                _ => Some(of_file(&name, &fs::read(&path)?)),
            };
            files.extend(named.map(|named| (name, named)));
        }
    }
    Ok(files)
}

/// A file that names no cluster that could be followed.
fn refused(name: &str) -> NamedClusters {
    NamedClusters { created: String::new(), clusters: BTreeMap::from([(name.to_string(), None)]) }
}

/// The cluster that a kubeconfig leads to, by the name that it has there: that of the current context, else of the first.
pub(super) fn of_file(name: &str, bytes: &[u8]) -> NamedClusters {
    let Ok(text) = std::str::from_utf8(bytes) else { return refused(name) };
    let Ok(kubeconfig) = Kubeconfig::from_yaml(text) else { return refused(name) };
    let current = kubeconfig.current_context.as_deref().unwrap_or_default();
    let of = |c: &kube::config::NamedContext| c.context.as_ref().map(|c| c.cluster.clone()).filter(|id| !id.is_empty());
    let mut contexts: Vec<_> =
        kubeconfig.contexts.iter().filter_map(|c| Some((c.name != current, &c.name, of(c)?))).collect();
    contexts.sort();
    let of_context = contexts.into_iter().next().map(|(.., id)| id);
    let of_cluster = || kubeconfig.clusters.iter().map(|c| c.name.clone()).filter(|name| !name.is_empty()).min();
    match of_context.or_else(of_cluster) {
        Some(id) => NamedClusters { created: String::new(), clusters: BTreeMap::from([(id, Some(text.into()))]) },
        None => refused(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str) -> String {
        format!(
            "current-context: b\ncontexts:\n- {{name: a, context: {{cluster: other, user: u}}}}\n\
             - {{name: b, context: {{cluster: {cluster}, user: u}}}}\nclusters: []\nusers: []\n"
        )
    }

    fn ids(files: &Files) -> Vec<(&str, &str, bool)> {
        files
            .iter()
            .flat_map(|(file, named)| named.clusters.iter().map(|(id, t)| (file.as_str(), id.as_str(), t.is_some())))
            .collect()
    }

    #[test]
    fn each_file_names_the_cluster_of_its_current_context_and_an_empty_one_keeps_its_last_content() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        fs::create_dir(dir.path().join("more")).unwrap();
        write("east.yaml", &kubeconfig("east"));
        write("more/west.yml", &kubeconfig("west"));
        write("odd.yaml", "no kubeconfig");
        write("notes.txt", &kubeconfig("north"));
        let first = look(dir.path(), &Files::new()).unwrap();
        let want = [("east.yaml", "east", true), ("more/west.yml", "west", true), ("odd.yaml", "odd.yaml", false)];
        assert_eq!(ids(&first), want);
        write("east.yaml", "");
        assert_eq!(ids(&look(dir.path(), &first).unwrap()), want);
        fs::remove_file(dir.path().join("more/west.yml")).unwrap();
        assert_eq!(ids(&look(dir.path(), &first).unwrap()).len(), 2);
        assert!(look(&dir.path().join("none"), &first).is_err());
    }
}
