//! Ports for the servers of tests.

use std::{
    env,
    fs::{self, File},
    net::TcpListener,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

/// Ports of Istio's sidecars, which tests in namespaces of the network use by number.
const ISTIO: std::ops::Range<u16> = 15_000..15_100;

/// The files that keep the ports of this process from others.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A port without a listener, given out once by this process, and by no other as long as this one runs. It lies below the range
/// from which systems take the ports of outgoing connections (Linux: from 32,768 on), so that none of the many connections of
/// these tests can take it before its server does.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id().wrapping_mul(101);
    let free = |port: &u16| {
        !ISTIO.contains(port)
            && hold(*port)
            && ["127.0.0.1", "0.0.0.0"].iter().all(|address| TcpListener::bind((*address, *port)).is_ok())
    };
    (0..20_000u32)
        .map(|_| 10_000 + (own.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000) as u16)
        .find(free)
        .expect("a port between 10,000 and 30,000 is free")
}

/// Takes the port's lock, which ends with the process. Where no lock can be had, the listener alone counts.
fn hold(port: u16) -> bool {
    let folder = env::temp_dir().join("pilothouse-test-ports");
    let _ = fs::create_dir_all(&folder);
    let Ok(file) = File::create(folder.join(port.to_string())) else { return true };
    match file.try_lock() {
        Ok(()) => {
            HELD.lock().unwrap().push(file);
            true
        }
        Err(fs::TryLockError::WouldBlock) => false,
        Err(fs::TryLockError::Error(_)) => true,
    }
}
