//! Config changes while the control plane is away, with proxyless gRPC clients that call without a pause: no call is lost, and
//! the new config is in force when the control plane is back.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use serde_json::json;

use crate::{
    config::{object, service, to},
    grpc::{Client, GO, Grpc, HOST, JAVA, OLDER_GO, OLDER_JAVA, bootstrap, server},
    mesh::ControlPlane,
    process::{free_port, wait_for, wait_until},
};

/// Calls between two looks at the answers.
const BATCH: u32 = 20;

type Answers = BTreeMap<String, u32>;

/// A client that calls in batches, one after the other.
struct Calls {
    stop: Arc<AtomicBool>,
    batches: Arc<Mutex<Vec<Answers>>>,
    thread: JoinHandle<()>,
}

impl Calls {
    fn start(mut client: Client) -> Self {
        let (stop, batches) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (ends, made) = (stop.clone(), batches.clone());
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::SeqCst) {
                let answers = client.call(BATCH, "");
                made.lock().unwrap().push(answers);
            }
        });
        Self { stop, batches, thread }
    }

    /// Waits until a batch that begins from now on was answered by these servers and by no other.
    fn until_answered_by(&self, names: &[&str]) {
        // The batch under way began before.
        let begun = self.batches.lock().unwrap().len() + 1;
        wait_until(&format!("answers of {names:?}"), || {
            assert!(!self.thread.is_finished(), "the client program ended");
            let later = self.batches.lock().unwrap().get(begun..).unwrap_or_default().to_vec();
            let right = |answers: &Answers| answers.keys().map(String::as_str).eq(names.iter().copied());
            if later.iter().any(right) { Ok(()) } else { Err(format!("the last batch is {:?}", later.last())) }
        });
    }

    /// Waits until so many more batches are answered.
    fn more(&self, batches: usize) {
        let begun = self.batches.lock().unwrap().len();
        wait_for("calls go on", || {
            assert!(!self.thread.is_finished(), "the client program ended");
            (self.batches.lock().unwrap().len() >= begun + batches).then_some(())
        });
    }

    /// Ends it; all answers and their counts.
    fn end(self) -> Answers {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        let mut all = Answers::new();
        for (answer, count) in self.batches.lock().unwrap().iter().flatten() {
            *all.entry(answer.clone()).or_default() += count;
        }
        all
    }
}

/// A subset of a name of its own, which holds one of the two servers, and the route to it.
fn subset(round: usize, version: &str) -> String {
    let name = format!("s{round}");
    let rule = json!({"host": HOST, "subsets": [{"name": name, "labels": {"version": version}}]});
    let routes = json!({"hosts": [HOST], "http": [{"route": [to(HOST, &name)]}]});
    object("DestinationRule", "echo", &rule) + &object("VirtualService", "echo", &routes)
}

/// gRPC-Go puts the routes of an update in force before its balancer knows the clusters of the same update
/// (`ClientConn.updateResolverStateAndUnlock`: `applyServiceConfigAndBalancer`, then `updateClientConnState`). A call in between
/// fails at once, whatever the control plane sends and when.
pub fn is_race_of_go(grpc: Grpc, answer: &str) -> bool {
    matches!(grpc, Grpc::Go(_)) && answer.contains("unknown cluster selected for RPC")
}

/// gRPC-Java gives up the cluster of a former subset as soon as it is missing from a response, a moment before it puts the
/// routes to the new one in force, and a call that chose it in between waits for it until its deadline. A response of
/// state of the world that has the new cluster and not the former one is all that a new process can send: it never knew the
/// former one. The C core, of Python, does the like, more rarely, and tells the deadline alone.
///
/// No stand-in for the former cluster would help. The process knows no endpoints of it: those of the whole service would let
/// calls reach endpoints that their route excluded, which is worse than a call that waits, and without endpoints calls wait or
/// fail as they do now. The new cluster cannot come later either, since a client asks for it because of the routes, and one
/// response of state of the world has to say both.
fn is_waiting_for_a_former_cluster(grpc: Grpc, answer: &str) -> bool {
    let texts: &[&str] = match grpc {
        Grpc::Java(_) => &[
            "found 0 leaf (logical DNS or EDS) clusters for root cluster",
            "Error retrieving CDS resource outbound|9000|s",
        ],
        Grpc::Python => &["DEADLINE_EXCEEDED"],
        Grpc::Go(_) | Grpc::JavaScript => &[],
    };
    texts.iter().any(|text| answer.contains(text))
}

fn config_changes_while_the_control_plane_is_away(grpc: Grpc) {
    let Some(command) = grpc.client(&format!("xds:///{HOST}:9000")) else { return };
    let (a, b) = (free_port(), free_port());
    let (_v1, _v2) = (server("v1", a, None), server("v2", b, None));
    let both = service(HOST, 9000, "GRPC", &[(a, "v1", ""), (b, "v2", "")]);
    let second = service(HOST, 9000, "GRPC", &[(b, "v2", "")]);
    let states: Vec<(String, &[&str])> = vec![
        (both.clone() + &subset(0, "v1"), &["v1"]),
        // Cluster, endpoints and route of another name.
        (both.clone() + &subset(1, "v2"), &["v2"]),
        (both.clone() + &subset(2, "v1"), &["v1"]),
        // The cluster of the service itself.
        (both.clone(), &["v1", "v2"]),
        // Endpoints alone.
        (second, &["v2"]),
        (both.clone(), &["v1", "v2"]),
        (both + &subset(6, "v1"), &["v1"]),
    ];
    let mut plane = ControlPlane::start(&[("echo.yaml", states[0].0.clone())]);
    let calls = Calls::start(Client::start(command, &bootstrap(&plane, "caller", "10.9.9.9")));
    calls.until_answered_by(states[0].1);
    for (config, names) in &states[1..] {
        plane.process.kill();
        calls.more(2);
        plane.write("echo.yaml", config);
        plane.restart();
        calls.until_answered_by(names);
    }
    let is_waiting = |answer: &str| is_waiting_for_a_former_cluster(grpc, answer);
    let is_race = |answer: &str| is_race_of_go(grpc, answer) || is_waiting(answer);
    let (raced, answers): (Answers, Answers) = calls.end().into_iter().partition(|(answer, _)| is_race(answer));
    if !raced.is_empty() {
        let _ = writeln!(std::io::stderr(), "{grpc:?}: calls between a route and its cluster: {raced:?}");
    }
    // One call is made at a time. Those of Java and Python wait in the gap; those of Go fail at once, as many as it is long.
    let waited = raced.iter().filter(|(answer, _)| is_waiting(answer)).map(|(_, count)| *count);
    assert!(waited.sum::<u32>() as usize <= states.len(), "more than one call for a change: {raced:?}");
    assert!(answers.keys().all(|answer| answer == "v1" || answer == "v2"), "calls are lost: {answers:?}");
    assert_eq!(plane.debug("/debug/push_status"), json!({}), "a client refused config");
}

#[test]
fn go_loses_no_call_to_an_outage() {
    config_changes_while_the_control_plane_is_away(GO);
}

#[test]
fn an_older_go_loses_no_call_to_an_outage() {
    config_changes_while_the_control_plane_is_away(OLDER_GO);
}

#[test]
fn java_loses_no_call_to_an_outage() {
    config_changes_while_the_control_plane_is_away(JAVA);
}

#[test]
fn an_older_java_loses_no_call_to_an_outage() {
    config_changes_while_the_control_plane_is_away(OLDER_JAVA);
}

#[test]
fn python_loses_no_call_to_an_outage() {
    config_changes_while_the_control_plane_is_away(Grpc::Python);
}

#[test]
fn javascript_loses_no_call_to_an_outage() {
    config_changes_while_the_control_plane_is_away(Grpc::JavaScript);
}
