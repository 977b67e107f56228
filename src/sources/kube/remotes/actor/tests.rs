//! The set follows the names, whichever step of a change a fault cuts short.

use std::sync::Mutex;

use super::*;
use crate::{
    model::Mesh,
    runtime::{RestartBudget, Shutdown},
    settings::{KubeconfigText, RemoteCluster, RemoteSettings},
    sources::{
        Applied, ConfigSink, SourceBatch, SourceBoard, SourceId, SourceRegister, SourceStarter, kube::WantedCluster,
    },
};

const DEADLINE: Duration = Duration::from_secs(60);

/// Takes everything.
struct Taker;

impl ConfigSink for Taker {
    fn apply(&self, _: SourceBatch) -> BoxFuture<'static, Result<Applied, Interrupted>> {
        async { Ok(Applied::default()) }.boxed()
    }
}

#[derive(Default)]
struct Log {
    calls: Vec<String>,
    /// So many calls are interrupted.
    interruptions: usize,
    panics: usize,
}

/// Notes its calls.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Log>>);

impl Recorder {
    fn note(&self, call: String) -> Result<(), Interrupted> {
        let mut log = self.0.lock().unwrap();
        if let Some(left) = log.panics.checked_sub(1) {
            log.panics = left;
            drop(log);
            panic!("as the test wants");
        }
        if let Some(left) = log.interruptions.checked_sub(1) {
            log.interruptions = left;
            return Err(Interrupted);
        }
        log.calls.push(call);
        Ok(())
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().calls)
    }
}

impl SourceRegister for Recorder {
    fn expect(&self, source: SourceId) -> BoxFuture<'static, Result<(), Interrupted>> {
        let recorder = self.clone();
        async move { recorder.note(format!("expect {source}")) }.boxed()
    }

    fn started(&self, board: Arc<SourceBoard>) {
        let _ = self.note(format!("started {}", board.read().source));
    }

    fn remove(&self, source: SourceId) -> BoxFuture<'static, Result<(), Interrupted>> {
        let recorder = self.clone();
        async move { recorder.note(format!("remove {source}")) }.boxed()
    }

    fn saved(&self) -> Vec<String> {
        Vec::new()
    }
}

struct Stage {
    handle: RemoteClustersHandle,
    recorder: Recorder,
    supervision: Supervision,
    shutdown: Shutdown,
}

impl Stage {
    fn set(change: impl FnOnce(&Supervision, &Recorder)) -> Self {
        let shutdown = Shutdown::default();
        let budget = RestartBudget::new(20, shutdown.clone());
        let supervision = Supervision::new(budget, Duration::from_millis(1), Duration::from_millis(4));
        let recorder = Recorder::default();
        change(&supervision, &recorder);
        let mesh = Mesh::from_values(&serde_json::json!({}), &serde_json::json!({}), "cluster.local", "main").unwrap();
        let setup = RemoteSetup {
            starter: SourceStarter {
                sink: Arc::new(Taker),
                supervision: supervision.clone(),
                silence: Duration::from_secs(600),
            },
            register: Arc::new(recorder.clone()),
            main: None,
            flagged: vec![RemoteCluster { name: "west".to_string(), path: "/none/west".into() }],
            settings: RemoteSettings { patience: Duration::from_millis(1), ..RemoteSettings::default() },
            mesh: watch::Sender::new(Arc::new(mesh)).subscribe(),
            revision: String::new(),
            deletion_hold: Duration::ZERO,
            shutdown: shutdown.clone(),
        };
        Self { handle: RemoteClustersActor::start(&supervision, setup), recorder, supervision, shutdown }
    }

    fn ids(&self) -> Vec<String> {
        let remotes = self.handle.follow().borrow().clone();
        remotes.sources().map(|source| source.id().to_string()).collect()
    }

    async fn hand_over(&self, ids: &[&str]) {
        let cluster = WantedCluster { by: "istio-system/one".into(), kubeconfig: Some(KubeconfigText("".into())) };
        let wanted = ids.iter().map(|id| ((*id).to_string(), cluster.clone())).collect();
        let taken = super::super::super::remote::hand_over(&self.handle, &wanted);
        tokio::time::timeout(DEADLINE, taken).await.unwrap();
    }

    fn restarts(&self) -> u32 {
        self.supervision.reports().iter().find(|q| &*q.actor == "remote-clusters").unwrap().restarts
    }
}

const WEST: [&str; 2] = ["kube:west/registry", "kube:west/discovery"];
const EAST: [&str; 2] = ["kube:east/registry", "kube:east/discovery"];

#[actix::test]
async fn a_fault_or_an_interruption_at_the_start_is_made_up_for() {
    let stage = Stage::set(|supervision, recorder| {
        supervision.faults().order("remote-clusters", 1);
        recorder.0.lock().unwrap().interruptions = 1;
    });
    tokio::time::timeout(DEADLINE, stage.handle.synced()).await.unwrap();
    assert_eq!(stage.ids(), WEST);
    assert_eq!(stage.restarts(), 1);
    let calls = ["expect kube:west/registry", "expect kube:west/discovery"];
    assert_eq!(stage.recorder.taken()[..2], calls, "a source is announced before it is started");
    stage.shutdown.begin();
}

#[actix::test]
async fn a_change_is_completed_after_any_interruption() {
    for panics in [false, true] {
        let stage = Stage::set(|_, _| ());
        tokio::time::timeout(DEADLINE, stage.handle.synced()).await.unwrap();
        let west = stage.handle.follow().borrow().sources().next().unwrap().board.clone();
        stage.recorder.taken();
        let disturb = || {
            let mut log = stage.recorder.0.lock().unwrap();
            if panics { log.panics = 1 } else { log.interruptions = 1 }
        };

        disturb();
        stage.hand_over(&["east"]).await;
        let of_east = stage.ids();
        assert_eq!(of_east, [EAST, WEST].concat());
        let calls = ["expect ", "expect ", "started ", "started "].iter().zip([EAST, EAST].concat());
        assert_eq!(stage.recorder.taken(), calls.map(|(call, id)| format!("{call}{id}")).collect::<Vec<_>>());

        disturb();
        stage.hand_over(&[]).await;
        assert_eq!(stage.ids(), WEST, "Secrets do not take away a cluster of the command line");
        assert_eq!(stage.recorder.taken(), EAST.map(|id| format!("remove {id}")));
        assert_eq!(stage.restarts(), if panics { 2 } else { 0 });
        let still = stage.handle.follow().borrow().sources().next().unwrap().board.clone();
        assert!(Arc::ptr_eq(&west, &still), "the sources of a cluster outlive the actor");
        stage.shutdown.begin();
    }
}

#[actix::test]
async fn a_cluster_that_is_named_again_while_it_leaves_is_followed_anew() {
    let stage = Stage::set(|_, _| ());
    tokio::time::timeout(DEADLINE, stage.handle.synced()).await.unwrap();
    stage.hand_over(&["east"]).await;
    let board = stage.handle.follow().borrow().sources().next().unwrap().board.clone();
    stage.recorder.taken();

    stage.recorder.0.lock().unwrap().interruptions = 1;
    assert_eq!(stage.handle.mailbox.send(Follow(Wanted::new())).await.unwrap().err(), Some(Interrupted));
    assert_eq!(stage.ids(), WEST, "a leaving cluster is not shown");
    stage.hand_over(&["east"]).await;
    assert_eq!(stage.ids(), [EAST, WEST].concat());
    let calls = stage.recorder.taken();
    assert_eq!(calls[..2], EAST.map(|id| format!("remove {id}")), "its old objects go first");
    assert_eq!(calls.len(), 6);
    let anew = stage.handle.follow().borrow().sources().next().unwrap().board.clone();
    assert!(!Arc::ptr_eq(&board, &anew));
    stage.shutdown.begin();
}
