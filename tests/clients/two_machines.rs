//! The guide's "A mesh with mutual TLS on two machines in ten commands", walked as it is printed: each machine is a network
//! namespace. `curl` alone is a client of the tests.

use std::{
    fs,
    net::{IpAddr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    http::{call, get_at},
    network::{Family, Interception, Machine, Network},
    process::{Process, scratch, wait_until},
    tools::TOOLS,
};

const GUIDE: &str = include_str!("../../src/guide/identity.md");
const CHAPTER: &str = "## A mesh with mutual TLS on two machines in ten commands\n";
const HOST: &str = "web.example";

/// The shell blocks of the chapter.
fn blocks() -> Vec<&'static str> {
    let (_, chapter) = GUIDE.split_once(CHAPTER).expect("the chapter");
    let chapter = chapter.split("\n## ").next().unwrap();
    chapter.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// A user's shell on a machine: `pilothouse`, `envoy` and `python3` are on its path.
pub struct Shell<'a> {
    machine: &'a Machine,
    pub folder: PathBuf,
    path: String,
}

impl<'a> Shell<'a> {
    pub fn new(machine: &'a Machine) -> Self {
        let parent = |program: &Path| program.parent().unwrap().display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let pilothouse = parent(Path::new(env!("CARGO_BIN_EXE_pilothouse")));
        let folder = scratch();
        let bin = folder.join("bin");
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(&TOOLS.envoy, bin.join("envoy")).unwrap();
        Self { machine, path: format!("{}:{pilothouse}:{path}", bin.display()), folder }
    }

    /// A script of this shell.
    pub fn bash(&self, script: &str) -> Command {
        let mut shell = Command::new("bash");
        shell.args(["-ec", script]).current_dir(&self.folder).env("PATH", &self.path);
        shell
    }

    /// Runs this on its machine.
    pub fn within<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        self.machine.within(run)
    }

    /// Runs the commands one after another but those of `curl`; those that end in `&` go on until their process is dropped.
    pub fn run(&self, commands: &str) -> Vec<Process> {
        let mut running = Vec::new();
        for command in commands_of(commands).into_iter().filter(|command| !command.starts_with("curl ")) {
            let (text, stays) = match command.strip_suffix('&') {
                // The shell gives its place to the program, so the program is killed.
                Some(text) => (format!("exec {}", text.trim()), true),
                None => (command.clone(), false),
            };
            let mut shell = self.bash(&text);
            if stays {
                let name = text.split(' ').nth(1).unwrap().to_string();
                running.push(self.machine.within(|| Process::start(&name, &mut shell)));
            } else {
                let output = self.machine.within(|| shell.output()).unwrap();
                assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
            }
        }
        running
    }
}

/// The commands of a block: here-documents and continued lines are parts of one.
pub fn commands_of(block: &str) -> Vec<String> {
    let (mut commands, mut rest) = (Vec::new(), block);
    while !rest.is_empty() {
        let (first, _) = rest.split_once('\n').unwrap_or((rest, ""));
        let end = if first.contains("<<'END'") {
            rest.find("\nEND\n").map(|at| at + "\nEND\n".len()).unwrap()
        } else {
            let mut end = 0;
            for line in rest.split_inclusive('\n') {
                end += line.len();
                if !line.ends_with("\\\n") {
                    break;
                }
            }
            end
        };
        let (command, after) = rest.split_at(end);
        commands.push(command.trim().to_string());
        rest = after;
    }
    commands
}

#[test]
fn the_guides_mesh_on_two_machines_works_as_it_is_printed() {
    let Some(network) = Network::start(&[Interception::None, Interception::None]) else { return };
    let [a, b] = network.machines();
    assert_eq!([a.ip(Family::V4), b.ip(Family::V4)], ["10.0.0.2", "10.0.0.3"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    let [serve, workload, caller] = blocks().try_into().expect("three blocks");
    let (on_a, on_b) = (Shell::new(&a), Shell::new(&b));
    let _control_plane = on_a.run(serve);
    let root = on_a.folder.join("target/try/mtls/state/identity/root-cert.pem");
    wait_until("the root is made", || if root.exists() { Ok(()) } else { Err("no file") }.map_err(String::from));
    let _of_a = on_a.run(workload);
    fs::create_dir_all(on_b.folder.join("target/try/mtls")).unwrap();
    fs::copy(&root, on_b.folder.join("target/try/mtls/root-cert.pem")).unwrap();
    fs::copy(on_a.folder.join("target/try/mtls/client.token"), on_b.folder.join("target/try/mtls/client.token"))
        .unwrap();
    let of_b = on_b.run(caller);
    let sidecar = SocketAddr::new("127.0.0.1".parse().unwrap(), 8001);
    wait_until("the call passes both Envoys", || match b.within(|| get_at(sidecar, HOST, "/", &[])) {
        Ok(answer) if answer.status == 200 && answer.body.contains("web.yaml") => Ok(()),
        other => Err(format!("{other:?}\n{}", of_b[0].tail())),
    });
    let posted = b.within(|| call(&mut TcpStream::connect(sidecar)?, "POST", HOST, "/", &[])).unwrap();
    assert_eq!(posted.status, 403, "{posted:?}");
    let plain = SocketAddr::new(a.ip(Family::V4), 8002);
    let refused = b.within(|| get_at(plain, HOST, "/", &[]));
    assert!(refused.is_err(), "plain text: {refused:?}");
}
