//! A run as it happens: the folders, the API server, the upstream, the process, and the clients that stay.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use pilothouse::{
    app::{self, Running},
    discovery::Composer,
    push::PushContext,
    runtime::Shutdown,
    settings::{
        AdminSettings, KubeAccess, KubeSettings, ListenAddress, MeshSettings, RuntimeSettings, Settings,
        SourceSettings, XdsSettings,
    },
};
use tempfile::TempDir;

use crate::{
    cluster::Cluster,
    compare::{self, Difference, Excused},
    nodes,
    objects::Object,
    proxy::{Proxy, Speaks, Who},
    trace::{FOLDERS, How, Setup, Step, Timed, Trace, UPSTREAM},
};

/// The longest time that convergence may take. A run that converges takes a fraction of it.
pub fn patience() -> Duration {
    Duration::from_secs(std::env::var("CONVERGENCE_PATIENCE").ok().and_then(|s| s.parse().ok()).unwrap_or(60))
}

/// Counts of a run.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    pub edits: usize,
    pub comparisons: usize,
    pub resources: usize,
    pub excused: Excused,
    /// Changes that a real API server took, and those that it refused.
    pub taken: usize,
    pub refused: usize,
}

impl Tally {
    /// Counts a comparison that found no difference.
    pub fn agree(&mut self, stayed: &[Proxy], fresh: &[Proxy], excused: &Excused) {
        self.excused.refused += excused.refused;
        self.excused.never_taken += excused.never_taken;
        self.comparisons += stayed.len() + fresh.len();
        self.resources += stayed.iter().chain(fresh).map(|p| compare::count(&p.holds())).sum::<usize>();
    }

    /// Both together.
    pub fn add(&mut self, other: &Self) {
        self.edits += other.edits;
        self.comparisons += other.comparisons;
        self.resources += other.resources;
        self.excused.refused += other.excused.refused;
        self.excused.never_taken += other.excused.never_taken;
        self.taken += other.taken;
        self.refused += other.refused;
    }
}

/// A run that did not converge.
#[derive(Debug)]
pub struct Failure {
    pub burst: usize,
    pub differences: Vec<Difference>,
    pub notes: Vec<String>,
}

struct World {
    dir: TempDir,
    setup: Setup,
    cluster: Option<Cluster>,
    upstream: Option<Running>,
    live: Running,
    who: Vec<Who>,
    stayed: Vec<Proxy>,
}

/// Plays a run.
pub async fn play(trace: &Trace, tally: &mut Tally) -> Result<(), Failure> {
    let cluster = if trace.setup.api_server { Some(Cluster::fake().await) } else { None };
    play_with(cluster, trace, tally).await
}

/// Plays a run with this API server.
pub async fn play_with(cluster: Option<Cluster>, trace: &Trace, tally: &mut Tally) -> Result<(), Failure> {
    let mut world = World::start(cluster, trace).await;
    let mut outcome = Ok(());
    for (at, burst) in trace.bursts.iter().enumerate() {
        for timed in burst {
            world.step(timed).await;
        }
        tally.edits += burst.len();
        if let Err(failure) = world.converge(at, tally).await {
            outcome = Err(failure);
            break;
        }
    }
    let counts = world.cluster.as_ref().map(Cluster::counts).unwrap_or_default();
    (tally.taken, tally.refused) = (tally.taken + counts.0, tally.refused + counts.1);
    world.end().await;
    outcome
}

async fn end(running: Running) {
    running.shutdown.begin();
    let ended = tokio::time::timeout(Duration::from_secs(60), running.wait()).await;
    assert!(matches!(ended, Ok(Ok(()))), "the process ended with {ended:?}");
}

/// The process that others read from.
async fn upstream(dir: &Path, setup: &Setup, port: u16) -> Running {
    let mut settings = bare(setup);
    settings.sources.config_dirs = vec![dir.join(UPSTREAM.to_string())];
    settings.xds.grpc_address = ListenAddress::loopback(port);
    app::build(settings, Shutdown::default()).await.unwrap()
}

impl World {
    async fn start(cluster: Option<Cluster>, trace: &Trace) -> Self {
        let dir = folders();
        for timed in &trace.first {
            edit(dir.path(), cluster.as_ref(), &timed.step).await;
        }
        let setup = trace.setup;
        let source = match setup.upstream {
            Some(_) => Some(upstream(dir.path(), &setup, 0).await),
            None => None,
        };
        let settings = settings(dir.path(), &setup, cluster.as_ref(), source.as_ref());
        let live = app::build(settings, Shutdown::default()).await.unwrap();
        let who = nodes::all();
        let stayed = who
            .iter()
            .flat_map(|who| [Speaks::Sotw, Speaks::Delta].map(|speaks| Proxy::start(who, speaks, live.addresses.grpc)))
            .collect();
        Self { dir, setup, cluster, upstream: source, live, who, stayed }
    }

    async fn end(self) {
        let Self { live, upstream, stayed, .. } = self;
        drop(stayed);
        end(live).await;
        if let Some(upstream) = upstream {
            end(upstream).await;
        }
    }

    async fn step(&mut self, timed: &Timed) {
        tokio::time::sleep(timed.pause).await;
        match &timed.step {
            Step::Client(at, what) => self.stayed[*at].does(*what),
            Step::Restart => {
                let next = self.process().await;
                self.stayed.iter().for_each(|proxy| proxy.moves_to(next.addresses.grpc));
                end(std::mem::replace(&mut self.live, next)).await;
            }
            Step::RestartUpstream => {
                if let Some(before) = self.upstream.take() {
                    let port = before.addresses.grpc.port();
                    end(before).await;
                    self.upstream = Some(upstream(self.dir.path(), &self.setup, port).await);
                }
            }
            step => edit(self.dir.path(), self.cluster.as_ref(), step).await,
        }
    }

    /// A process on the same inputs.
    async fn process(&self) -> Running {
        let settings = settings(self.dir.path(), &self.setup, self.cluster.as_ref(), self.upstream.as_ref());
        app::build(settings, Shutdown::default()).await.unwrap()
    }

    /// Waits until the clients that stayed, and new ones of the same process, hold the resources of new ones of a new process.
    async fn converge(&self, burst: usize, tally: &mut Tally) -> Result<(), Failure> {
        let cold = self.process().await;
        let connect = |running: &Running, speaks: Speaks| -> Vec<Proxy> {
            self.who.iter().map(|who| Proxy::start(who, speaks, running.addresses.grpc)).collect()
        };
        let (one, other) =
            if burst.is_multiple_of(2) { (Speaks::Sotw, Speaks::Delta) } else { (Speaks::Delta, Speaks::Sotw) };
        let (of_cold, fresh) = (connect(&cold, one), connect(&self.live, other));
        let deadline = Instant::now() + patience();
        let outcome = loop {
            let mut notes = Vec::new();
            if !cold.readiness.is_ready() {
                notes.push(format!("the new process waits for {:?}", cold.readiness.waiting_for()));
            }
            notes.extend(stored(&self.live, &cold));
            let (differences, excused) = differences(&self.stayed, &of_cold, &fresh);
            if notes.is_empty() && differences.is_empty() {
                tally.agree(&self.stayed, &fresh, &excused);
                break Ok(());
            }
            if Instant::now() >= deadline {
                notes.extend(refused(&self.live));
                notes.extend(layers(&self.live, &cold, &self.who));
                notes.extend(transcript(&self.stayed, &differences));
                break Err(Failure { burst, differences, notes });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        drop((of_cold, fresh));
        end(cold).await;
        outcome
    }
}

/// Differences of the clients of a process, those that stayed (two of each node) and new ones, from clients of a new process.
pub fn differences(stayed: &[Proxy], of_cold: &[Proxy], fresh: &[Proxy]) -> (Vec<Difference>, Excused) {
    let (mut all, mut excused) = (Vec::new(), Excused::default());
    for ((cold, fresh), stayed) in of_cold.iter().zip(fresh).zip(stayed.chunks(2)) {
        let expected = cold.holds().clone();
        for (proxy, what) in stayed.iter().map(|p| (p, "stayed")).chain([(fresh, "new")]) {
            let client = format!("{}, {what}", proxy.label());
            let holds = proxy.holds().clone();
            let who = (client.as_str(), proxy.speaks);
            all.extend(compare::differences(who, "a new process", (&holds, &expected), &mut excused));
        }
    }
    (all, excused)
}

/// The last messages of clients that stayed and hold something else.
pub fn transcript(stayed: &[Proxy], differences: &[Difference]) -> Vec<String> {
    let differs = |p: &&Proxy| differences.iter().any(|d| d.client.starts_with(&p.label()));
    let lines = |p: &Proxy| p.transcript().into_iter().map(|line| format!("{}: {line}", p.label())).collect::<Vec<_>>();
    stayed.iter().filter(differs).flat_map(lines).collect()
}

/// Folders without files.
pub fn folders() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    (0..FOLDERS).for_each(|at| fs::create_dir_all(dir.path().join(format!("{at}/sub"))).unwrap());
    dir
}

/// Objects whose content differs between two processes.
fn stored(live: &Running, cold: &Running) -> Vec<String> {
    let of = |running: &Running| -> BTreeMap<String, u64> {
        let snapshot = running.store.snapshot();
        snapshot
            .by_kind
            .values()
            .flat_map(|l| l.iter())
            .map(|c| (format!("{:?} {}", c.kind(), c.key()), c.stamp))
            .collect()
    };
    let (live, cold) = (of(live), of(cold));
    let mut keys: Vec<&String> = live.keys().chain(cold.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.retain(|key| live.get(*key) != cold.get(*key));
    let side = |key: &String| match (live.contains_key(key), cold.contains_key(key)) {
        (true, false) => "only in the process that ran on",
        (false, _) => "only in the new process",
        _ => "of other content",
    };
    keys.into_iter().map(|key| format!("the store's {key} is {}", side(key))).collect()
}

/// Objects that a source refuses: no run means to have any, but for Secrets that the API server hands to every client that asks for
/// those of other clusters.
fn refused(running: &Running) -> Vec<String> {
    let meant = |r: &pilothouse::sources::SourceReport| !r.source.ends_with("remote-clusters");
    let reports = running.all_sources.all().iter().map(|handle| handle.board.read()).collect::<Vec<_>>();
    let of =
        |r: pilothouse::sources::SourceReport| r.findings.refused.iter().map(ToString::to_string).collect::<Vec<_>>();
    reports.into_iter().filter(meant).flat_map(of).collect()
}

/// Settings that every process has.
fn bare(setup: &Setup) -> Settings {
    let mut settings = Settings {
        sources: SourceSettings { deletion_hold: Duration::ZERO, ..SourceSettings::default() },
        xds: XdsSettings {
            grpc_address: ListenAddress::loopback(0),
            trust_loopback: Some(true),
            ..XdsSettings::default()
        },
        admin: AdminSettings {
            http_address: ListenAddress::loopback(0),
            monitoring_address: None,
            ..AdminSettings::default()
        },
        runtime: RuntimeSettings {
            first_pause: Duration::from_millis(20),
            shutdown: Duration::from_millis(400),
            ..RuntimeSettings::default()
        },
        ..Settings::default()
    };
    let features = &mut settings.features;
    features.enable_ip_autoallocate = setup.addresses_from_status;
    features.enable_alpha_gateway_api = true;
    features.enable_gateway_api_inference_extension = true;
    settings
}

fn settings(dir: &Path, setup: &Setup, cluster: Option<&Cluster>, upstream: Option<&Running>) -> Settings {
    let mut settings = bare(setup);
    settings.sources.config_dirs = vec![dir.join("0"), dir.join("1")];
    settings.mesh = MeshSettings { config_file: Some(dir.join("mesh.yaml")), ..MeshSettings::default() };
    settings.features.enable_eds_debounce = setup.endpoints_debounced;
    if let Some(quiet) = setup.quiet {
        settings.features.debounce_after = quiet;
    }
    if let Some(cluster) = cluster {
        let path = cluster.kubeconfig(dir);
        settings.sources.kubernetes = Some(KubeSettings {
            first_pause: Duration::from_millis(5),
            longest_pause: Duration::from_millis(200),
            deletion_hold: Duration::ZERO,
            ..KubeSettings::new(KubeAccess::Kubeconfig { path, context: None })
        });
    }
    if let (Some(upstream), Some(delta)) = (upstream, setup.upstream) {
        settings.sources.upstream.addresses = vec![upstream.addresses.grpc.to_string()];
        settings.sources.upstream.delta = delta;
        settings.sources.upstream.first_pause = Duration::from_millis(20);
    }
    settings
}

/// Applies a step to files or to the API server.
pub async fn edit(dir: &Path, cluster: Option<&Cluster>, step: &Step) {
    match step {
        Step::File { folder, file, objects, how } => {
            write(&dir.join(folder.to_string()).join(file), objects, *how).await;
        }
        Step::Kube { key, object } => {
            if let Some(cluster) = cluster {
                cluster.edit(key, object.as_ref()).await;
            }
        }
        Step::Mesh(mesh) => fs::write(dir.join("mesh.yaml"), mesh.to_string()).unwrap(),
        Step::Client(..) | Step::Restart | Step::RestartUpstream | Step::Nothing => {}
    }
}

async fn write(path: &Path, objects: &[Object], how: How) {
    if objects.is_empty() {
        // It may never have been there.
        let _ = fs::remove_file(path);
        return;
    }
    let text: String = objects.iter().map(|object| format!("---\n{}\n", object.value)).collect();
    match how {
        How::Renamed => {
            let beside: PathBuf = path.with_extension("part");
            fs::write(&beside, text).unwrap();
            fs::rename(&beside, path).unwrap();
        }
        How::InPlace => fs::write(path, text).unwrap(),
        How::Slowly(ms) => {
            let half = text.len() / 2;
            fs::write(path, &text[..half]).unwrap();
            tokio::time::sleep(Duration::from_millis(ms)).await;
            let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
            std::io::Write::write_all(&mut file, &text.as_bytes()[half..]).unwrap();
        }
        How::Broken(ms) => {
            fs::write(path, "---\n{\"apiVersion\": \"v1\", broken: [\n").unwrap();
            tokio::time::sleep(Duration::from_millis(ms)).await;
            fs::write(path, text).unwrap();
        }
    }
}

/// The place where two processes part: their inputs, their generated resources, or the responses to clients.
fn layers(live: &Running, cold: &Running, who: &[Who]) -> Vec<String> {
    let (Some(ran), Some(new)) = (live.state.current(), cold.state.current()) else { return Vec::new() };
    let again = PushContext::build(live.inputs.read());
    let others = [("made anew of its inputs", &again), ("of the new process", &*new.context)];
    let mut notes = Vec::new();
    for (what, other) in others {
        let services = |context: &PushContext| -> Vec<String> {
            context.services.all.iter().map(|s| format!("{} of {} {:x}", s.hostname, s.namespace, s.stamp)).collect()
        };
        let (ours, theirs) = (services(&ran.context), services(other));
        if ours != theirs {
            let only = |a: &[String], b: &[String]| a.iter().filter(|s| !b.contains(s)).cloned().collect::<Vec<_>>();
            let (ours, theirs) = (only(&ours, &theirs), only(&theirs, &ours));
            notes.push(format!("services are others than those {what}, or in another order: {ours:?}, {theirs:?}"));
        }
        for connection in live.state.connections() {
            let targets = who.iter().find(|who| who.node.id == *connection.node.raw_id).map(|who| &who.targets[..]);
            let made = |context: &PushContext| {
                let composer = Composer::new(context, context.view_of(&connection.node), connection.identity.as_ref());
                composer.all(targets.unwrap_or_default()).unwrap()
            };
            if made(&ran.context) != made(other) {
                notes.push(format!("{} would be sent other resources than {what}", connection.id));
            }
        }
    }
    if notes.is_empty() {
        notes.push("both processes would send a new client the same: a change was not told".to_string());
    }
    notes
}
