//! One process of the program under edits, moves of clients, and clients that come and go. After each round its inputs and its
//! clients are those of the beginning again, and so are its figures: memory, descriptors, threads, tasks and queues.

use std::{
    fmt, fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    kills::{Process, connect, free},
    nodes,
    proxy::{Move, Proxy, Speaks},
    random::Random,
    trace::{FOLDERS, Step, Trace},
    world,
};

/// Seconds of the short form.
pub const SHORT: u64 = 6;
/// Rounds before the first figures count: the first ones fill tables and pools that stay.
const WARM: usize = 1;
/// How long the figures may take to come back.
const SETTLES: Duration = Duration::from_secs(120);
/// Threads for blocking work end some seconds after it, and a page that is read uses some itself.
const THREADS: u64 = 16;
const DESCRIPTORS: u64 = 8;
const TASKS: u64 = 8;
/// The allocator keeps freed memory: growth below a third and this many bytes is no leak that a run of this length could show.
const MEMORY: u64 = 48 << 20;

/// The figures of a process at rest.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    memory: u64,
    descriptors: u64,
    threads: u64,
    tasks: u64,
    /// Connected clients.
    clients: u64,
    /// Messages that wait for actors.
    waiting: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, descriptors, threads, tasks, clients, waiting } = self;
        let memory = memory >> 20;
        write!(
            f,
            "{memory} MiB, {descriptors} descriptors, {threads} threads, {tasks} tasks, {clients} clients, {waiting} waiting"
        )
    }
}

impl Figures {
    async fn of(pages: SocketAddr) -> Option<Self> {
        let read = move || -> Option<Self> {
            let metrics = page(pages, "/metrics")?;
            let value = |name: &str| {
                let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
                line.and_then(|value| value.parse::<f64>().ok()).map(|value| value as u64)
            };
            let queues: Vec<Value> = serde_json::from_str(&page(pages, "/debug/queuez")?).ok()?;
            Some(Self {
                memory: value("process_resident_memory_bytes")?,
                descriptors: value("process_open_fds")?,
                threads: value("process_threads")?,
                tasks: value("pilothouse_tasks")?,
                clients: value("pilot_xds").unwrap_or_default(),
                waiting: queues.iter().filter_map(|queue| queue["waiting"].as_u64()).sum(),
            })
        };
        tokio::task::spawn_blocking(read).await.unwrap()
    }

    /// Whether nothing is above `first` but for the named margins.
    fn is_back_to(&self, first: &Self) -> bool {
        self.clients == first.clients
            && self.waiting == 0
            && self.descriptors <= first.descriptors + DESCRIPTORS
            && self.threads <= first.threads + THREADS
            && self.tasks <= first.tasks + TASKS
            && self.memory <= first.memory + first.memory / 3 + MEMORY
    }
}

/// The body of a page; `None` while nobody answers.
fn page(pages: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(pages).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.0 200").then(|| body.to_string())
}

/// Waits for figures that say this.
async fn until(pages: SocketAddr, says: impl Fn(&Figures) -> bool) -> Result<Figures, Option<Figures>> {
    let deadline = Instant::now() + SETTLES;
    let mut last = None;
    while Instant::now() < deadline {
        last = Figures::of(pages).await;
        if let Some(figures) = last.filter(&says) {
            return Ok(figures);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(last)
}

/// Puts the first files in the place of all that are there.
async fn begin(dir: &Path, trace: &Trace) {
    for folder in 0..FOLDERS {
        let folder = dir.join(folder.to_string());
        fs::remove_dir_all(&folder).unwrap();
        fs::create_dir_all(folder.join("sub")).unwrap();
    }
    for timed in &trace.first {
        world::edit(dir, None, &timed.step).await;
    }
}

/// Runs for this long, and for a few rounds at least.
pub async fn run(length: Duration) {
    let (who, dir, began) = (nodes::all(), world::folders(), Instant::now());
    let trace = Trace::of_files(1, 2 * who.len());
    begin(dir.path(), &trace).await;
    let (address, pages) = (free(), free());
    let process = Process::start_with_pages(dir.path(), &trace.setup, address, pages);
    let stayed = connect(&who, &[Speaks::Sotw, Speaks::Delta], process.address);
    let at_rest = |figures: &Figures| figures.clients == stayed.len() as u64 && figures.waiting == 0;
    let (mut first, mut last, mut rounds, mut edits, mut came) = (None::<Figures>, Figures::default(), 0, 0, 0);
    while rounds <= WARM || began.elapsed() < length {
        let mut random = Random::new(rounds as u64);
        let round = Trace::of_files(1 + rounds as u64, 2 * who.len());
        let mut guests: Vec<Proxy> = Vec::new();
        for timed in round.bursts.iter().flatten() {
            tokio::time::sleep(timed.pause.min(Duration::from_millis(20))).await;
            match &timed.step {
                Step::Client(at, what) => stayed[*at].does(*what),
                step => world::edit(dir.path(), None, step).await,
            }
            edits += 1;
            if random.chance(30) {
                guests.extend(connect(
                    &who[..1 + random.below(who.len())],
                    &[*random.of(&[Speaks::Sotw, Speaks::Delta])],
                    address,
                ));
            }
            if random.chance(20) {
                came += guests.len();
                guests.clear();
            }
            if random.chance(10) {
                stayed[random.below(stayed.len())].does(Move::Reconnect);
            }
        }
        came += guests.len();
        drop(guests);
        begin(dir.path(), &trace).await;
        let rest =
            until(pages, |figures| at_rest(figures) && first.is_none_or(|first| figures.is_back_to(&first))).await;
        last = rest.unwrap_or_else(|last| {
            let last = last.map_or_else(|| "no answer".to_string(), |last| last.to_string());
            let first = first.map_or_else(|| "none yet".to_string(), |first| first.to_string());
            panic!("round {rounds} does not come back: {last}; the first figures are {first}")
        });
        rounds += 1;
        if rounds == WARM {
            first = Some(last);
        }
        println!("round {rounds} after {:.0?}: {last}", began.elapsed());
    }
    let first = first.unwrap_or_default();
    let text = format!("{rounds} rounds, {edits} steps, {came} clients came and went; first {first}; last {last}");
    let _ = writeln!(std::io::stderr(), "soak: {text} in {:.0?}", began.elapsed());
}
