//! Requests without a pause, and their outcomes.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{http::get, process::wait_for};

/// Pause between two requests of one client.
const PAUSE: Duration = Duration::from_millis(3);

/// A client that asks again and again, each time over a connection of its own.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<()>,
}

impl Traffic {
    /// Begins to ask a host at a port.
    pub fn start(port: u16, host: &'static str) -> Self {
        let (stop, answered, failures) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (ends, counts, fails) = (stop.clone(), answered.clone(), failures.clone());
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::SeqCst) {
                match get(port, host, "/", &[]) {
                    Ok(answer) if answer.status == 200 => drop(counts.fetch_add(1, Ordering::SeqCst)),
                    other => fails.lock().unwrap().push(format!("{other:?}")),
                }
                thread::sleep(PAUSE);
            }
        });
        Self { stop, answered, failures, thread }
    }

    /// Waits until so many more requests were answered.
    pub fn more(&self, requests: u64) {
        let before = self.answered.load(Ordering::SeqCst);
        wait_for("traffic goes on", || (self.answered.load(Ordering::SeqCst) >= before + requests).then_some(()));
    }

    /// Ends it. Not one request may have failed.
    pub fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        assert_eq!(*self.failures.lock().unwrap(), Vec::<String>::new(), "requests failed");
        assert!(self.answered.load(Ordering::SeqCst) > 0);
    }
}
