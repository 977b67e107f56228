//! An upgrade without a service manager: a second process takes the listening sockets over from the first.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{fs::MetadataExt, net::UnixListener, net::UnixStream},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use pilothouse::{store::last_good::Folder, testing::AdsClient, xds::ResourceType};

use crate::{
    attacks::ask,
    binary::Binary,
    drain::connect_when_ready,
    proxy::Proxies,
    registration,
    registration_state::machine,
    skipped::skipped,
    stage::{DEADLINE, entry},
    systemd::{knock, status},
};

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_string()
}

/// A process that takes over, or begins.
fn serve(folder: &Path, socket: &Path, more: &[&str]) -> Binary {
    serve_at("127.0.0.1:0", folder, socket, more)
}

fn serve_at(grpc: &str, folder: &Path, socket: &Path, more: &[&str]) -> Binary {
    let socket = text(socket);
    let own = ["--log-format", "json", "--grpc-addr", grpc, "--http-addr", "127.0.0.1:0", "--handover-socket", &socket];
    Binary::serve_with(folder, &[&own, more].concat(), &[])
}

fn says(server: &mut Binary, what: &str) {
    server.until(what, |line| line.contains(what).then_some(()));
}

/// Asks `/ready` again and again until it is told to stop: the number of answers, and those that are none or another one.
fn ask_ready(address: SocketAddr, stop: Arc<AtomicBool>) -> thread::JoinHandle<(usize, Vec<String>)> {
    let answer = move || -> std::io::Result<String> {
        let mut socket = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
        write!(socket, "GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer.lines().next().unwrap_or_default().to_string())
    };
    thread::spawn(move || {
        let (mut well, mut wrong) = (0, Vec::new());
        while !stop.load(Ordering::Relaxed) {
            match answer() {
                Ok(line) if line == "HTTP/1.1 200 OK" => well += 1,
                other => wrong.push(format!("{other:?}")),
            }
            thread::sleep(Duration::from_millis(2));
        }
        (well, wrong)
    })
}

/// Streams of so many clients; each task ends with the moment at which its stream does.
async fn fleet(address: SocketAddr, size: usize) -> Vec<tokio::task::JoinHandle<Instant>> {
    let mut streams = Vec::new();
    for number in 0..size {
        let client = AdsClient::connect(address, &format!("10.0.1.{number}")).await.unwrap();
        let mut stream = client.sotw(None).await.unwrap();
        stream.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
        stream.next().await.unwrap();
        streams.push(tokio::spawn(async move {
            let _client = client;
            loop {
                match stream.next().await {
                    Err(pilothouse::testing::ClientError::Silence) | Ok(_) => {}
                    Err(_) => return Instant::now(),
                }
            }
        }));
    }
    streams
}

async fn until_saved(state: &Path, name: &str) {
    let has = || {
        let folder = Folder::open(state, 1 << 30).unwrap();
        let contents = folder.sources().into_iter().filter_map(|source| folder.load(&source).ok().flatten());
        contents.flat_map(|saved| saved.configs).any(|config| &*config.meta.name == name)
    };
    let start = Instant::now();
    while !has() {
        assert!(start.elapsed() < DEADLINE, "{name} is not saved");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_handovers_refuse_no_connection_and_move_clients_one_after_another() {
    let (dir, run, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (socket, unix, state_dir) = (run.path().join("handover"), run.path().join("xds"), text(state.path()));
    let unix_path = text(&unix);
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let more = ["--state-dir", &state_dir, "--grpc-unix-socket", &unix_path, "--secure-grpc-addr", "127.0.0.1:0"];
    let mut running = serve(dir.path(), &socket, &more);
    let (grpc, http) = running.addresses();
    connect_when_ready(grpc).await.until("a.example").await;
    until_saved(state.path(), "a").await;
    assert_eq!(fs::symlink_metadata(&socket).unwrap().mode() & 0o777, 0o600);
    let inode = fs::symlink_metadata(&unix).unwrap().ino();

    let stop = Arc::new(AtomicBool::new(false));
    let knocking = [knock(grpc, stop.clone()), knock(http, stop.clone()), ask_ready(http, stop.clone())];
    for name in ["b", "c"] {
        let streams = fleet(grpc, 12).await;
        let host = format!("{name}.example");
        fs::write(dir.path().join("a.yaml"), entry(name, &host)).unwrap();
        let mut next = serve(dir.path(), &socket, &more);
        assert_eq!(next.addresses(), (grpc, http), "the same sockets");
        says(&mut next, "took over");
        says(&mut running, "another process has taken over");
        // The lock of the state is free when the one before has ended.
        let ended = tokio::task::spawn_blocking(move || (running.ends_within(DEADLINE), running)).await.unwrap();
        assert_eq!(ended.0.code(), Some(0), "{:#?}", { ended.1 }.last_lines(5));
        let mut ends = Vec::new();
        for stream in streams {
            ends.push(tokio::time::timeout(DEADLINE, stream).await.unwrap().unwrap());
        }
        let spread = *ends.iter().max().unwrap() - *ends.iter().min().unwrap();
        assert!(spread > Duration::from_millis(500), "the clients come back within {spread:?}");
        connect_when_ready(grpc).await.until(&host).await;
        until_saved(state.path(), name).await;
        running = next;
    }
    stop.store(true, Ordering::Relaxed);
    for thread in knocking {
        let (well, wrong) = thread.join().unwrap();
        assert!(well > 20 && wrong.is_empty(), "{well} well, wrong: {wrong:?}");
    }
    assert_eq!(fs::symlink_metadata(&unix).unwrap().ino(), inode, "the socket of clients is the same");
    UnixStream::connect(&unix).unwrap();
    running.terminate();
    let ended = tokio::task::spawn_blocking(move || running.ends_within(DEADLINE)).await.unwrap();
    assert_eq!(ended.code(), Some(0));
    assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0, "both sockets go with the last process");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_that_never_gets_ready_changes_nothing() {
    let (dir, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let socket = run.path().join("handover");
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let mut running = serve(dir.path(), &socket, &[]);
    let (grpc, http) = running.addresses();
    let mut proxies: Proxies = connect_when_ready(grpc).await;
    proxies.until("a.example").await;
    // Nobody listens there, so it waits for ever.
    let mut waits = serve(dir.path(), &socket, &["--upstream", "127.0.0.1:1"]);
    waits.addresses();
    let mut second = serve(dir.path(), &socket, &[]);
    says(&mut second, "is taking over already");
    assert_eq!(second.ends_within(DEADLINE).code(), Some(70));
    for _ in 0..50 {
        assert_eq!(status(http, "/ready"), "HTTP/1.1 200 OK", "the waiting process answers nobody");
        AdsClient::connect(grpc, "10.0.0.6").await.unwrap().sotw(None).await.unwrap();
    }
    waits.kill();
    says(&mut running, "the successor ended before it was ready");
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example") + &entry("b", "b.example")).unwrap();
    proxies.until("b.example").await;
    // Then one with other addresses: those are bound anew.
    let mut third = serve_at("127.0.0.2:0", dir.path(), &socket, &[]);
    let (moved, same) = third.addresses();
    assert_eq!((moved.ip().to_string(), same), ("127.0.0.2".to_string(), http));
    says(&mut third, "took over");
    proxies.ended().await;
    connect_when_ready(moved).await.until("b.example").await;
}

#[test]
fn wrong_sockets_end_the_start_with_the_reason() {
    let (dir, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let refused = |socket: &Path, what: &str| {
        let mut server = serve(dir.path(), socket, &[]);
        let line = server.until(what, |line| line.contains("--handover-socket").then(|| line.to_string()));
        assert!(line.contains(what) && line.contains(socket.to_str().unwrap()), "{line}");
        assert_eq!(server.ends_within(DEADLINE).code(), Some(70));
    };
    let file = run.path().join("file");
    fs::write(&file, "kept").unwrap();
    refused(&file, "a file that is no socket is there");
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    refused(&run.path().join("no/folder"), "No such file");

    // A process of a later form.
    let later = run.path().join("later");
    let listener = UnixListener::bind(&later).unwrap();
    let other = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut question = String::new();
        BufReader::new(&stream).read_line(&mut question).unwrap();
        (&stream).write_all(b"{\"handover\": 9, \"version\": \"8.1.0\", \"process\": 1}\n").unwrap();
        question
    });
    refused(&later, "(version 8.1.0) hands over in form 9, and this one takes over in form 1");
    assert!(other.join().unwrap().contains("\"handover\":1"));
}

/// Listens at a path as another user, with a socket that all may connect to.
const OTHER: &str = "
import os, socket, sys
os.setgid(65534); os.setuid(65534)
listener = socket.socket(socket.AF_UNIX); listener.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o777); listener.listen()
print('listens', flush=True)
sys.stdin.read()
";

#[test]
fn sockets_of_another_user_are_not_taken() {
    let (dir, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skipped("another user's process can be started by root only");
    }
    let opened = Command::new("chmod").arg("777").arg(run.path()).status().unwrap();
    assert!(opened.success());
    let socket = run.path().join("handover");
    let mut other = Command::new("python3");
    let mut other =
        other.args(["-c", OTHER]).arg(&socket).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "listens\n");
    let mut server = serve(dir.path(), &socket, &[]);
    says(&mut server, "is one of user 65534, and this one of user 0");
    assert_eq!(server.ends_within(DEADLINE).code(), Some(70));
    drop(other.stdin.take());
    other.wait().unwrap();
}

#[test]
fn without_a_handover_a_taken_address_ends_the_start() {
    let (dir, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut server = serve_at(&address, dir.path(), &run.path().join("handover"), &[]);
    says(&mut server, &format!("cannot listen on {address}"));
    assert_eq!(server.ends_within(DEADLINE).code(), Some(70));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_registers_while_the_successor_starts_is_known_to_it() {
    let (dir, run, state) = (registration::folder("{}"), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (elsewhere, state) = (tempfile::tempdir().unwrap(), text(state.path()));
    fs::write(elsewhere.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let socket = text(&run.path().join("handover"));
    let kept = ["--handover-socket", &socket, "--state-dir", &state];
    let grace = [("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", "1h")];
    let mut running = Binary::serve(dir.path(), &kept, &grace);
    let (grpc, http) = running.addresses();
    drop(machine(grpc, "10.1.0.8").await);
    // Its upstream comes later, so it waits.
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut next = Binary::serve(dir.path(), &[&kept[..], &["--upstream", &upstream]].concat(), &grace);
    next.addresses();
    says(&mut running, "a successor has the sockets");
    let registered = machine(grpc, "10.1.0.9").await;
    let own = ["--grpc-addr", &upstream, "--http-addr", "127.0.0.1:0", "--log-format", "json"];
    let _upstream = Binary::serve_with(elsewhere.path(), &own, &[]);
    says(&mut next, "took over");
    let ended = tokio::task::spawn_blocking(move || running.ends_within(DEADLINE)).await.unwrap();
    assert_eq!(ended.code(), Some(0));
    drop(registered);
    let start = Instant::now();
    loop {
        let entries = ask(http, "GET /debug/configz?kind=WorkloadEntry").await.body;
        if ["10.1.0.8", "10.1.0.9"].iter().all(|ip| entries.contains(ip)) {
            return;
        }
        assert!(start.elapsed() < DEADLINE, "{entries}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
