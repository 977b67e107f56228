//! The service manager above the process (systemd's `Type=notify`): it is told when the process serves, waits or ends, and by a
//! sign of life in each interval that the process is not stuck.
//!
//! Messages are datagrams that never block: a manager that does not read them holds nothing up.

use std::{
    env, io,
    os::unix::net::{SocketAddr, UnixDatagram},
    process,
    time::Duration,
};

use super::Shutdown;

/// The interval in which the state is looked at until the process serves.
const LOOK: Duration = Duration::from_millis(50);

/// The socket of the service manager.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// A sign of life is sent in this interval.
    signs: Option<Duration>,
}

impl ServiceManager {
    /// The manager that the environment names; `None` without one.
    ///
    /// # Errors
    /// An address that is none of a datagram socket.
    pub fn of_env() -> io::Result<Option<Self>> {
        let Some(address) = env::var("NOTIFY_SOCKET").ok().filter(|address| !address.is_empty()) else {
            return Ok(None);
        };
        let address = address_of(&address)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let signs = signs(|name| env::var(name).ok(), process::id());
        Ok(Some(Self { socket, address, signs }))
    }

    /// Tells the state until the process ends: `waiting_for` names the parts that are not ready; none means that it serves.
    pub async fn follow(self, waiting_for: impl Fn() -> Vec<String>, shutdown: Shutdown) {
        let mut told = None;
        let mut ready = false;
        while !shutdown.has_begun() {
            let message = (!ready).then(|| state(&waiting_for()));
            if message.is_some() && message != told && self.tell(message.as_deref().unwrap_or_default()) {
                ready = message.as_ref().is_some_and(|text| text.starts_with(READY));
                told = message;
            }
            if self.signs.is_some() {
                self.tell("WATCHDOG=1");
            }
            let pause = match (ready, self.signs) {
                (true, Some(signs)) => signs,
                (true, None) => Duration::from_secs(3600),
                (false, signs) => signs.map_or(LOOK, |signs| signs.min(LOOK)),
            };
            tokio::select! {
                () = shutdown.begun() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.tell("STOPPING=1\nSTATUS=draining");
    }

    /// Whether the manager took the message.
    fn tell(&self, message: &str) -> bool {
        let sent = self.socket.send_to_addr(message.as_bytes(), &self.address);
        if let Err(error) = &sent {
            tracing::warn!(%error, "the service manager does not take a message");
        }
        sent.is_ok()
    }
}

const READY: &str = "READY=1";

/// The message about the parts that are not ready.
fn state(waiting_for: &[String]) -> String {
    match waiting_for {
        [] => format!("{READY}\nSTATUS=serving"),
        parts => format!("STATUS=waiting for: {}", parts.join(", ").replace('\n', " ")),
    }
}

/// A path, or with `@` a name in the abstract namespace of Linux.
fn address_of(text: &str) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = text.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt;
        return SocketAddr::from_abstract_name(name);
    }
    if text.starts_with('/') {
        return SocketAddr::from_pathname(text);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{text:?} is no path and no abstract name")))
}

/// Half of the time after which the manager takes the process for stuck, where it watches this process.
fn signs(value_of: impl Fn(&str) -> Option<String>, own: u32) -> Option<Duration> {
    let number = |name: &str| value_of(name)?.parse::<u64>().ok();
    let micros = number("WATCHDOG_USEC").filter(|micros| *micros > 0)?;
    match value_of("WATCHDOG_PID") {
        Some(pid) if pid.parse() != Ok(own) => None,
        _ => Some(Duration::from_micros(micros / 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_are_for_the_process_that_is_watched() {
        let of = |pairs: &[(&str, &str)]| {
            signs(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_string()), 7)
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(of(&[("WATCHDOG_USEC", "2000000")]), second);
        assert_eq!(of(&[("WATCHDOG_USEC", "2000000"), ("WATCHDOG_PID", "7")]), second);
        for none in [&[][..], &[("WATCHDOG_USEC", "0")], &[("WATCHDOG_USEC", "2000000"), ("WATCHDOG_PID", "8")]] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_state_is_one_message_whatever_the_names() {
        assert_eq!(state(&[]), "READY=1\nSTATUS=serving");
        assert_eq!(state(&["a\nREADY=1".to_string(), "b".to_string()]), "STATUS=waiting for: a READY=1, b");
        assert!(address_of("relative").is_err() && address_of("@name").is_ok() && address_of("/run/x").is_ok());
    }
}
