//! The writer of log lines to standard error: a bounded queue and a thread.
//!
//! A reader of standard error may block. Then lines wait, later ones are dropped and counted, and the rest of the process is
//! not affected.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Write},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Maximum number of waiting bytes.
const WAITING: usize = 4 << 20;
/// Target size of a write, in bytes.
const CHUNK: usize = 64 << 10;
/// The interval at which the thread checks for more lines without a notification.
const TICK: Duration = Duration::from_secs(1);
/// Pause before a blocked write is tried again.
const RETRY: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct Lines {
    waiting: VecDeque<String>,
    bytes: usize,
    /// Number of lines dropped since the last write.
    dropped: u64,
    writing: bool,
}

/// The queue of waiting lines. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    shared: Arc<(Mutex<Lines>, Condvar)>,
}

impl Queue {
    /// Starts a queue and its thread. `more` returns lines at each tick; `told` renders the line about dropped lines.
    ///
    /// # Errors
    /// Fails when the thread cannot be started.
    pub(super) fn start(
        output: impl Write + Send + 'static,
        more: impl Fn() -> Vec<String> + Send + 'static,
        told: impl Fn(u64) -> String + Send + 'static,
    ) -> std::io::Result<Self> {
        let queue = Self::default();
        let writer = queue.clone();
        let name = "log-writer".to_string();
        thread::Builder::new().name(name).spawn(move || writer.write_all(output, &more, &told))?;
        Ok(queue)
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.shared.0.lock()
    }

    /// Adds a line, or drops it when the queue is full. Never waits for the reader.
    pub(super) fn push(&self, line: String) {
        let mut lines = self.lock();
        if lines.bytes + line.len() > WAITING {
            lines.dropped += 1;
            drop(lines);
            count(1);
            return;
        }
        lines.bytes += line.len();
        lines.waiting.push_back(line);
        drop(lines);
        self.shared.1.notify_all();
    }

    /// Waits, within this time, until all lines are written. Returns whether they are.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut lines = self.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if lines.waiting.is_empty() && !lines.writing {
                return true;
            }
            if left.is_zero() {
                return false;
            }
            self.shared.1.wait_for(&mut lines, left);
        }
    }

    fn write_all(&self, mut output: impl Write, more: &dyn Fn() -> Vec<String>, told: &dyn Fn(u64) -> String) {
        let mut looked = Instant::now();
        loop {
            if looked.elapsed() >= TICK {
                looked = Instant::now();
                more().into_iter().for_each(|line| self.push(line));
            }
            let (mut chunk, lines, dropped) = self.take();
            if dropped > 0 {
                chunk.push_str(&told(dropped));
            }
            if !chunk.is_empty() && !write(&mut output, chunk.as_bytes()) {
                count(lines);
            }
            self.lock().writing = false;
            self.shared.1.notify_all();
        }
    }

    /// The next lines to write with their number, and the number of dropped lines; empty after a tick without lines.
    fn take(&self) -> (String, u64, u64) {
        let mut lines = self.lock();
        if lines.waiting.is_empty() {
            self.shared.1.wait_for(&mut lines, TICK);
        }
        let (mut chunk, mut number) = (String::new(), 0);
        while chunk.len() < CHUNK
            && let Some(line) = lines.waiting.pop_front()
        {
            lines.bytes -= line.len();
            number += 1;
            chunk.push_str(&line);
        }
        // Lines were dropped after all waiting ones: their number is reported once these are written.
        let dropped = if lines.waiting.is_empty() { std::mem::take(&mut lines.dropped) } else { 0 };
        lines.writing = number > 0 || dropped > 0;
        (chunk, number, dropped)
    }
}

/// Writes all bytes without a time limit; returns `false` when the reader is gone.
fn write(output: &mut impl Write, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return false,
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY),
            Err(_) => return false,
        }
    }
    true
}

fn count(dropped: u64) {
    metrics::counter!("pilothouse_log_lines_dropped").increment(dropped);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// A writer that blocks until the test receives the bytes.
    struct Reluctant(SyncSender<Vec<u8>>);

    impl Write for Reluctant {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(|_| std::io::Error::from(ErrorKind::BrokenPipe))?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn queue() -> (Queue, Receiver<Vec<u8>>) {
        let (sender, written) = sync_channel(0);
        (Queue::start(Reluctant(sender), Vec::new, |n| format!("{n} dropped\n")).unwrap(), written)
    }

    #[test]
    fn unread_lines_are_bounded_dropped_and_counted() {
        let (queue, written) = queue();
        let line = format!("{}\n", "x".repeat(1023));
        let pushed = 3 * WAITING / line.len();
        (0..pushed).for_each(|_| queue.push(line.clone()));
        assert!(queue.lock().bytes <= WAITING);
        assert!(!queue.flush(Duration::from_millis(1)), "the reader is blocked");
        let (mut text, mut lines) = (String::new(), 0);
        let dropped = loop {
            text.push_str(&String::from_utf8(written.recv().unwrap()).unwrap());
            lines = text.lines().filter(|l| l.starts_with('x')).count().max(lines);
            if let Some(told) = text.lines().find_map(|l| l.strip_suffix(" dropped")) {
                break told.parse::<usize>().unwrap();
            }
        };
        assert_eq!(lines + dropped, pushed);
        assert!(dropped > 0 && lines * line.len() >= WAITING - line.len());
        assert!(queue.flush(Duration::from_secs(60)));
    }

    #[test]
    fn a_reader_that_goes_away_stops_nothing() {
        let (queue, written) = queue();
        drop(written);
        queue.push("a\n".to_string());
        assert!(queue.flush(Duration::from_secs(60)));
    }
}
