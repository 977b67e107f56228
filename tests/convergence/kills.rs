//! A real process that is killed while edits go on, again and again: clients that come back hold the
//! same as new clients of a new process.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    nodes,
    ports::free_port,
    proxy::{Proxy, Speaks, Who},
    random::Random,
    trace::{Setup, Step, Timed, Trace},
    world::{self, Failure, Tally, patience},
};

/// Edits between two kills, at most.
const BETWEEN: usize = 6;
/// The longest pause between a start and the next kill, in milliseconds: some processes end before they serve anybody.
const LONGEST: usize = 1200;

/// A process of the program on the inputs of a run.
pub struct Process {
    child: Child,
    /// Where clients come to.
    pub address: SocketAddr,
}

impl Process {
    fn start(dir: &Path, setup: &Setup, address: SocketAddr) -> Self {
        Self::start_with_pages(dir, setup, address, ([127, 0, 0, 1], 0).into())
    }

    /// As [`Process::start`], with the admin pages at `pages`.
    pub fn start_with_pages(dir: &Path, setup: &Setup, address: SocketAddr, pages: SocketAddr) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.arg("serve").args(["--grpc-addr", &address.to_string(), "--http-addr", &pages.to_string()]);
        command.args(["--monitoring-addr", "", "--deletion-hold", "0s", "--trust-loopback", "--log-level", "error"]);
        (0..2).for_each(|folder| {
            command.arg("--config-dir").arg(dir.join(folder.to_string()));
        });
        command.arg("--mesh-config").arg(dir.join("mesh.yaml"));
        command.env("PILOT_ENABLE_ALPHA_GATEWAY_API", "true").env("ENABLE_GATEWAY_API_INFERENCE_EXTENSION", "true");
        command.env("PILOT_ENABLE_IP_AUTOALLOCATE", setup.addresses_from_status.to_string());
        command.env("PILOT_ENABLE_EDS_DEBOUNCE", setup.endpoints_debounced.to_string());
        if let Some(quiet) = setup.quiet {
            command.env("PILOT_DEBOUNCE_AFTER", format!("{}ms", quiet.as_millis()));
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
        Self { child, address }
    }

    /// Ends it at once, as a crash would.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that is free, and stays so between two processes.
pub fn free() -> SocketAddr {
    ([127, 0, 0, 1], free_port()).into()
}

pub fn connect(who: &[Who], speaks: &[Speaks], server: SocketAddr) -> Vec<Proxy> {
    who.iter().flat_map(|who| speaks.iter().map(|speaks| Proxy::start(who, *speaks, server))).collect()
}

/// Plays a run on files with so many kills at most. Gives how many there were.
pub async fn play(seed: u64, most: usize, tally: &mut Tally) -> Result<usize, Failure> {
    let who = nodes::all();
    let trace = Trace::of_files(seed, 2 * who.len());
    let mut random = Random::new(seed ^ 0x6b69_6c6c);
    let dir = world::folders();
    for timed in &trace.first {
        world::edit(dir.path(), None, &timed.step).await;
    }
    let address = free();
    let mut live = Process::start(dir.path(), &trace.setup, address);
    let stayed = connect(&who, &[Speaks::Sotw, Speaks::Delta], address);
    let mut kills = 0;
    for (at, burst) in trace.bursts.iter().enumerate() {
        let mut steps = burst.iter();
        while steps.len() > 0 && kills < most {
            let begun = Instant::now();
            let pause = Duration::from_millis(random.below(LONGEST) as u64);
            for timed in steps.by_ref().take(1 + random.below(BETWEEN)) {
                step(dir.path(), &stayed, timed).await;
            }
            tokio::time::sleep(pause.saturating_sub(begun.elapsed())).await;
            live.kill();
            kills += 1;
            live = Process::start(dir.path(), &trace.setup, address);
        }
        tally.edits += burst.len();
        converge(at, dir.path(), &trace.setup, (&who, &stayed, live.address), tally).await?;
        if kills >= most {
            break;
        }
    }
    Ok(kills)
}

async fn step(dir: &Path, stayed: &[Proxy], timed: &Timed) {
    tokio::time::sleep(timed.pause).await;
    match &timed.step {
        Step::Client(at, what) => stayed[*at].does(*what),
        step => world::edit(dir, None, step).await,
    }
}

/// Waits for clients to hold the same as those of a new process.
async fn converge(
    burst: usize,
    dir: &Path,
    setup: &Setup,
    (who, stayed, live): (&[Who], &[Proxy], SocketAddr),
    tally: &mut Tally,
) -> Result<(), Failure> {
    let cold = Process::start(dir, setup, free());
    let (one, other) =
        if burst.is_multiple_of(2) { (Speaks::Sotw, Speaks::Delta) } else { (Speaks::Delta, Speaks::Sotw) };
    let (of_cold, fresh) = (connect(who, &[one], cold.address), connect(who, &[other], live));
    let deadline = Instant::now() + patience();
    loop {
        // Proxies that have been told nothing yet agree with anybody; a gRPC program may never be told anything.
        let mut proxies = of_cold.iter().filter(|proxy| proxy.who.targets.is_empty());
        let served = proxies.all(|proxy| proxy.holds().values().any(|held| held.responses > 0));
        let (differences, excused) = world::differences(stayed, &of_cold, &fresh);
        if served && differences.is_empty() {
            tally.agree(stayed, &fresh, &excused);
            return Ok(());
        }
        if Instant::now() >= deadline {
            let notes = world::transcript(stayed, &differences);
            return Err(Failure { burst, differences, notes });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
