//! Networks of the tests' own: a router and machines, each a network namespace. A machine may take its TCP to a sidecar, as
//! Istio's rules for iptables do. They end with the test, however it ends.
//!
//! They need the right to make namespaces (root) and a Linux with bridges, nf_tables and its NAT; where one is missing, a line on
//! standard error says so.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
};

use crate::{
    skipped::skipped,
    tools::{TOOLS, program, pyroute2},
};

/// The group of a sidecar, by which its own traffic is known.
pub const SIDECAR_GROUP: u32 = 1337;
/// A version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// An address of the router that is of no machine and no service.
pub fn outside(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(192, 0, 2, 1).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// The interception of a machine's TCP by its sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interception {
    /// It does not.
    None,
    /// By redirection: the program sees the sidecar as its client.
    Redirect,
    /// Inbound by TPROXY: the program sees its client.
    Tproxy,
}

/// A namespace of the network: by default the one of the tests themselves.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    namespace: Option<Arc<File>>,
    number: u8,
}

impl Machine {
    /// Whether it is another than the one of the tests.
    pub fn is_apart(&self) -> bool {
        self.namespace.is_some()
    }

    /// Runs this there. Sockets, threads and processes that it makes stay there.
    pub fn within<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let Some(namespace) = &self.namespace else { return run() };
        let done = thread::scope(|scope| {
            let inside = scope.spawn(|| {
                enter(namespace);
                run()
            });
            inside.join()
        });
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Its address.
    pub fn ip(&self, family: Family) -> IpAddr {
        match (family, self.is_apart()) {
            (Family::V4, true) => Ipv4Addr::new(10, 0, 0, self.number).into(),
            (Family::V6, true) => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, self.number.into()).into(),
            (Family::V4, false) => Ipv4Addr::LOCALHOST.into(),
            (Family::V6, false) => Ipv6Addr::LOCALHOST.into(),
        }
    }
}

#[cfg(target_os = "linux")]
fn enter(namespace: &File) {
    use std::os::fd::AsFd;

    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

#[cfg(not(target_os = "linux"))]
fn enter(_: &File) {
    unreachable!("namespaces are made on Linux alone");
}

/// A network; the namespaces last as long as it, or as a process inside.
pub struct Network {
    pub router: Machine,
    machines: Vec<Machine>,
    holder: Child,
}

impl Network {
    /// A network with these machines; `None`, said aloud, where there can be none.
    pub fn start(machines: &[Interception]) -> Option<Self> {
        let names =
            machines.iter().enumerate().map(|(n, interception)| format!("m{n}={interception:?}").to_lowercase());
        let mut holder = Command::new(&TOOLS.python)
            .arg(program("network.py"))
            .args(names)
            .env("PYTHONPATH", pyroute2())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if let Some(lack) = line.strip_prefix("lacks ") {
            skipped(&format!("a network of its own needs {}, which this machine lacks", lack.trim()));
            let _ = holder.wait();
            return None;
        }
        let Ok(paths) = serde_json::from_str::<Vec<String>>(&line) else {
            let mut reason = String::new();
            let _ = holder.stderr.take().unwrap().read_to_string(&mut reason);
            panic!("no network: {reason}");
        };
        let mut all = paths.iter().zip(1..).map(|(path, number)| {
            let namespace = Some(Arc::new(File::open(path).unwrap()));
            Machine { namespace, number }
        });
        let router = all.next().unwrap();
        Some(Self { router, machines: all.collect(), holder })
    }

    /// All machines, in the order of their start.
    pub fn machines<const N: usize>(&self) -> [Machine; N] {
        self.machines.clone().try_into().expect("the number of machines")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
