//! The program under a service manager: its unit, the messages that the manager gets, and listeners that the manager opened.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clap::{CommandFactory, Parser};
use pilothouse::cli::Cli;
use serde_json::Value;

use crate::{
    binary::Binary,
    drain::connect_when_ready,
    skipped::skipped,
    stage::{DEADLINE, entry},
};

fn unit() -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/systemd/pilothouse.service");
    (path.clone(), fs::read_to_string(path).unwrap())
}

/// The output of systemd-analyze; `None`, said aloud, where there is none.
fn analyzed(arguments: &[&str], files: &[&Path]) -> Option<(bool, String)> {
    let run = Command::new("systemd-analyze").args(arguments).args(files).output();
    let output = run.inspect_err(|error| skipped(&format!("systemd-analyze: {error}"))).ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

#[test]
fn the_unit_is_valid_and_exposes_little() {
    let (path, text) = unit();
    let Some((_, said)) = analyzed(&["security", "--offline=true", "--no-pager"], &[&path]) else { return };
    let overall = said.lines().find(|line| line.contains("Overall exposure level")).expect(&said);
    let exposure =
        overall.split(": ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok()).expect(overall);
    assert!(exposure <= 2.0, "{said}");
    // The program of the unit need not be installed here.
    let dir = tempfile::tempdir().unwrap();
    let (service, socket) = (dir.path().join("pilothouse.service"), dir.path().join("pilothouse-grpc.socket"));
    fs::write(&service, text.replace("/usr/local/bin/pilothouse", "/bin/true")).unwrap();
    fs::copy(path.with_file_name("pilothouse-grpc.socket"), &socket).unwrap();
    let (valid, said) = analyzed(&["verify", "--man=no"], &[&service, &socket]).unwrap();
    assert!(valid && said.trim().is_empty(), "{said}");
}

#[test]
fn the_unit_starts_the_program_with_flags_that_it_has() {
    let (_, text) = unit();
    let values = |key: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        lines.map(str::to_string).collect()
    };
    assert_eq!(values("Type"), ["notify"]);
    let start = values("ExecStart").remove(0);
    let command = Cli::command();
    let serve = command.get_subcommands().find(|c| c.get_name() == "serve").unwrap();
    let mut words: Vec<String> = start.split_whitespace().map(str::to_string).collect();
    for variable in values("Environment") {
        let (name, value) = variable.split_once('=').unwrap();
        let is_it = |flag: &&clap::Arg| flag.get_env().and_then(|env| env.to_str()) == Some(name);
        let flag = serve.get_arguments().find(is_it).unwrap_or_else(|| panic!("no flag has the variable {name}"));
        words.push(format!("--{}={value}", flag.get_long().unwrap()));
    }
    assert!(words.len() > 3, "{words:?}");
    Cli::try_parse_from(words).unwrap();
}

/// The status line of an answer to a GET.
pub fn status(address: SocketAddr, path: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_string()
}

/// The socket of a service manager.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(folder: &Path) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { socket, path }
    }

    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).expect("a message in time");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// The message that says this, and the number of others before it.
    fn until(&self, says: &str) -> (String, usize) {
        let begin = Instant::now();
        for others in 0.. {
            let message = self.next();
            if message.contains(says) {
                return (message, others);
            }
            assert!(begin.elapsed() < DEADLINE, "no {says}");
        }
        unreachable!()
    }
}

#[test]
fn the_manager_is_told_readiness_signs_of_life_and_the_end() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let run = tempfile::tempdir().unwrap();
    let manager = Manager::new(run.path());
    let socket = manager.path.to_str().unwrap();
    let mut server = Binary::serve(dir.path(), &[], &[("NOTIFY_SOCKET", socket), ("WATCHDOG_USEC", "200000")]);
    let (_, http) = server.addresses();
    assert_eq!(manager.until("READY=1").0, "READY=1\nSTATUS=serving");
    assert_eq!(status(http, "/ready"), "HTTP/1.1 200 OK");
    let begin = Instant::now();
    for _ in 0..3 {
        assert_eq!(manager.next(), "WATCHDOG=1");
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    server.terminate();
    assert_eq!(manager.until("STOPPING=1").0, "STOPPING=1\nSTATUS=draining");
    assert_eq!(server.ends_within(DEADLINE).code(), Some(0));
}

#[test]
fn the_manager_is_told_what_a_start_waits_for_and_no_readiness() {
    let dir = tempfile::tempdir().unwrap();
    let run = tempfile::tempdir().unwrap();
    let manager = Manager::new(run.path());
    // Nobody listens there.
    let upstream = ["--upstream", "127.0.0.1:1"];
    let environment = [("NOTIFY_SOCKET", manager.path.to_str().unwrap()), ("WATCHDOG_USEC", "100000")];
    let mut server = Binary::serve(dir.path(), &upstream, &environment);
    let (_, http) = server.addresses();
    let (message, _) = manager.until("STATUS=waiting for: ");
    assert!(!message.contains("READY"), "{message}");
    for _ in 0..10 {
        let message = manager.next();
        assert!(!message.contains("READY=1"), "{message}");
    }
    assert!(status(http, "/ready").starts_with("HTTP/1.1 503"));
    server.terminate();
    manager.until("STOPPING=1");
}

/// Opens listeners as a service manager does, says their ports, and becomes the program. Its first argument is their names.
const OPEN: &str = "
import fcntl, json, os, socket, sys
names = sys.argv[1].split(':')
listeners = [socket.create_server(('127.0.0.1', 0)) for _ in names]
print(json.dumps({'ports': {name: l.getsockname()[1] for name, l in zip(names, listeners)}}), flush=True)
high = [fcntl.fcntl(l, fcntl.F_DUPFD, 50) for l in listeners]
for at, fd in enumerate(high):
    os.dup2(fd, 3 + at)
environment = dict(os.environ, LISTEN_FDS=str(len(names)), LISTEN_FDNAMES=sys.argv[1], LISTEN_PID=str(os.getpid()))
os.execve(sys.argv[2], sys.argv[2:], environment)
";

fn on_listeners(names: &str, folder: &Path, more: &[&str]) -> Binary {
    let mut command = Command::new("python3");
    command.args(["-c", OPEN, names, env!("CARGO_BIN_EXE_pilothouse"), "serve", "--log-format", "json"]);
    command.arg("--config-dir").arg(folder).args(more);
    Binary::spawn(command)
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_of_the_manager_are_served() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let state = tempfile::tempdir().unwrap();
    let names = "monitoring:grpc:http:secure-grpc";
    // Without a secure listener and one of metrics by flags: the manager's are served.
    let more = ["--monitoring-addr", "", "--state-dir", state.path().to_str().unwrap()];
    let mut server = on_listeners(names, dir.path(), &more);
    let ports: BTreeMap<String, u16> = server.until("ports", |line| {
        serde_json::from_value(serde_json::from_str::<Value>(line).ok()?.get("ports")?.clone()).ok()
    });
    let at = |name: &str| SocketAddr::from(([127, 0, 0, 1], ports[name]));
    let line = server.until("addresses", |line| {
        serde_json::from_str::<Value>(line).ok().filter(|line| line["message"] == "serving")
    });
    assert_eq!((&line["grpc"], &line["http"]), (&at("grpc").to_string().into(), &at("http").to_string().into()));
    assert_eq!(line["secure_grpc"], at("secure-grpc").to_string(), "{line}");
    assert!(line["monitoring"].to_string().contains(&at("monitoring").to_string()), "{line}");
    let mut proxies = connect_when_ready(at("grpc")).await;
    proxies.until("a.example").await;
    let (ready, metrics) = (at("http"), at("monitoring"));
    let said =
        tokio::task::spawn_blocking(move || (status(ready, "/ready"), status(metrics, "/metrics"))).await.unwrap();
    assert_eq!(said, ("HTTP/1.1 200 OK".to_string(), "HTTP/1.1 200 OK".to_string()));
    assert!(TcpStream::connect(at("secure-grpc")).is_ok());
}

#[test]
fn a_listener_with_a_name_of_no_server_ends_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for (names, says) in [
        (
            "grpc:webhooks",
            "socket \"webhooks\" of the service manager: it is none of grpc, secure-grpc, http, monitoring",
        ),
        ("grpc:grpc", "more than one socket has the name"),
    ] {
        let mut server = on_listeners(names, dir.path(), &["--http-addr", "127.0.0.1:0", "--monitoring-addr", ""]);
        server.until(says, |line| line.contains(says).then_some(()));
        assert_eq!(server.ends_within(DEADLINE).code(), Some(70));
    }
    let socket = dir.path().join("handover");
    let more = ["--monitoring-addr", "", "--handover-socket", socket.to_str().unwrap()];
    let mut server = on_listeners("grpc:http", dir.path(), &more);
    let says = "the service manager hands sockets over itself: one of both";
    server.until(says, |line| line.contains(says).then_some(()));
    assert_eq!(server.ends_within(DEADLINE).code(), Some(70));
}

/// Keeps listeners open as a service manager does, and starts the program again when it has ended. It says the ports, and the id
/// of each process.
const KEEP: &str = "
import json, os, socket, subprocess, sys
names = sys.argv[1].split(':')
listeners = [socket.create_server(('127.0.0.1', 0), backlog=4096) for _ in names]
print(json.dumps({'ports': {name: l.getsockname()[1] for name, l in zip(names, listeners)}}), flush=True)
def inherit():
    high = [os.dup(l.fileno()) for l in listeners]
    high = [os.dup2(fd, 50 + at) for at, fd in enumerate(high)]
    for at, fd in enumerate(high):
        os.dup2(fd, 3 + at)
    os.environ.update(LISTEN_FDS=str(len(names)), LISTEN_FDNAMES=sys.argv[1], LISTEN_PID=str(os.getpid()))
while True:
    pid = os.fork()
    if pid == 0:
        inherit()
        os.execve(sys.argv[2], sys.argv[2:], os.environ)
    print(json.dumps({'child': pid}), flush=True)
    os.waitpid(pid, 0)
";

/// Connects again and again until it is told to stop: the number of connections, and of refused ones.
pub fn knock(address: SocketAddr, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<(usize, Vec<String>)> {
    std::thread::spawn(move || {
        let (mut opened, mut refused) = (0, Vec::new());
        while !stop.load(Ordering::Relaxed) {
            match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
                Ok(_) => opened += 1,
                Err(error) => refused.push(error.to_string()),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        (opened, refused)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_under_a_listener_of_the_manager_refuses_no_connection() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", KEEP, "grpc:http", env!("CARGO_BIN_EXE_pilothouse"), "serve", "--log-format", "json"]);
    command.args(["--monitoring-addr", "", "--config-dir"]).arg(dir.path());
    let mut server = Binary::spawn(command);
    let ports: BTreeMap<String, u16> = server.until("ports", |line| {
        serde_json::from_value(serde_json::from_str::<Value>(line).ok()?.get("ports")?.clone()).ok()
    });
    let child = |line: &str| serde_json::from_str::<Value>(line).ok()?.get("child")?.as_u64();
    let first = server.until("a process", child);
    let grpc = SocketAddr::from(([127, 0, 0, 1], ports["grpc"]));
    let http = SocketAddr::from(([127, 0, 0, 1], ports["http"]));
    let mut proxies = connect_when_ready(grpc).await;
    proxies.until("a.example").await;
    let stop = Arc::new(AtomicBool::new(false));
    let knocking = [knock(grpc, stop.clone()), knock(http, stop.clone())];
    let mut running = first;
    for host in ["b.example", "c.example"] {
        let name = host.split('.').next().unwrap();
        fs::write(dir.path().join("a.yaml"), entry(name, host)).unwrap();
        assert!(Command::new("kill").args(["-TERM", &running.to_string()]).status().unwrap().success());
        let next = server.until("another process", child);
        assert_ne!(next, running);
        running = next;
        // Proxies come back to the new process, with the content of now.
        proxies = connect_when_ready(grpc).await;
        proxies.until(host).await;
    }
    stop.store(true, Ordering::Relaxed);
    for thread in knocking {
        let (opened, refused) = thread.join().unwrap();
        assert!(opened > 20 && refused.is_empty(), "{opened} opened, refused: {refused:?}");
    }
    // The manager first: it would start another one.
    server.kill();
    assert!(Command::new("kill").args(["-KILL", &running.to_string()]).status().unwrap().success());
}
