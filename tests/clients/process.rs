//! Child processes that end with the test, and waiting for conditions with a deadline.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

#[path = "ports.rs"]
mod ports;
pub use ports::free_port;

/// The longest time that a condition in these tests may take to come true.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// A child process; killed when dropped. Its output goes to a file that is shown when a test waits in vain.
pub struct Process {
    child: Child,
    /// Its output.
    pub log: PathBuf,
}

impl Process {
    pub fn start(name: &str, command: &mut Command) -> Self {
        let log = scratch().join(format!("{name}.log"));
        let out = File::create(&log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap_or_else(|e| panic!("starting {command:?}: {e}"));
        Self { child, log }
    }

    /// The end of its output.
    pub fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A folder of this test process for files of the tests; a new one at each call.
pub fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("clients-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Waits until `check` gives a value.
pub fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    wait_until(what, || check().ok_or_else(String::new))
}

/// Waits until `check` gives a value; its last error is shown when it never does.
pub fn wait_until<T>(what: &str, mut check: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match check() {
            Ok(value) => return value,
            Err(instead) => assert!(start.elapsed() < DEADLINE, "waited in vain for: {what}; {instead}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}
