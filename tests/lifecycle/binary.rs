//! The program itself as a child process, on free ports.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::stage::DEADLINE;

/// A running `pilothouse serve`; killed when dropped.
pub struct Binary {
    child: Child,
    lines: Receiver<String>,
    log: Vec<String>,
}

impl Binary {
    /// Starts it with this folder and more arguments, on free ports, with a log of JSON.
    pub fn serve(folder: &Path, more: &[&str], env: &[(&str, &str)]) -> Self {
        let ports = ["--log-format", "json", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"];
        Self::serve_with(folder, &[&ports, more].concat(), env)
    }

    /// As [`Binary::serve`], under the limits that these words of a shell set.
    pub fn serve_within(limits: &str, folder: &Path, more: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        let limited = format!("{limits} && exec \"$0\" \"$@\"");
        shell.args(["-c", &limited, env!("CARGO_BIN_EXE_pilothouse")]);
        shell.args(["serve", "--log-format", "json", "--monitoring-addr", "", "--config-dir"]).arg(folder);
        shell.args(["--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"]).args(more);
        Self::spawn(shell)
    }

    /// Starts it with this folder and these arguments.
    pub fn serve_with(folder: &Path, arguments: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(["serve", "--monitoring-addr", "", "--config-dir"]).arg(folder).args(arguments);
        command.envs(env.iter().copied());
        Self::spawn(command)
    }

    /// Starts a command that becomes the program.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for stream in streams {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Self { child, lines, log: Vec::new() }
    }

    /// Waits for a line of the log that says this.
    pub fn until<T>(&mut self, what: &str, says: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no {what}: {:#?}", self.log));
            let found = says(&line);
            self.log.push(line);
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// Waits until it serves; gives the addresses of xDS and of the pages.
    pub fn addresses(&mut self) -> (SocketAddr, SocketAddr) {
        self.until("addresses", |line| {
            let line: Value = serde_json::from_str(line).ok()?;
            let of = |name: &str| line[name].as_str()?.parse().ok();
            Some((of("grpc")?, of("http")?))
        })
    }

    /// Kills it, without any warning.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The lines so far that say this.
    pub fn lines_with(&mut self, text: &str) -> usize {
        self.log.extend(self.lines.try_iter());
        self.log.iter().filter(|line| line.contains(text)).count()
    }

    /// All lines so far.
    pub fn lines(&mut self) -> usize {
        self.lines_with("")
    }

    /// The last lines, for messages of tests.
    pub fn last_lines(&mut self, count: usize) -> &[String] {
        self.log.extend(self.lines.try_iter());
        &self.log[self.log.len().saturating_sub(count)..]
    }

    /// A file of the system about this process.
    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap()
    }

    /// A path as the process sees it, which may have mounts of its own.
    pub fn seen(&self, path: &Path) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join("root").join(path.strip_prefix("/").unwrap())
    }

    /// Time of processors that it has used.
    pub fn cpu_time(&self) -> Duration {
        // User and system time in hundredths of a second are the 12th and 13th field behind the name.
        let stat = self.proc("stat");
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
        Duration::from_millis(fields.map(|ticks| ticks.parse::<u64>().unwrap() * 10).sum())
    }

    /// The soft and the hard limit of file descriptors.
    pub fn descriptors(&self) -> (usize, usize) {
        let limits = self.proc("limits");
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    /// Resident memory in MB.
    pub fn resident(&self) -> usize {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap_or_default();
        let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
        pages * 4 / 1024
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for it to end within this time.
    pub fn ends_within(&mut self, time: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < time, "still running after {time:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
