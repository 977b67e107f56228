//! A mass deletion is held back until it is confirmed from this machine, over HTTP or by the command.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Output},
};

use pilothouse::sources::SourceState;

use crate::stage::{DEADLINE, end, entry, start, until};

/// One request over HTTP/1.0; gives the whole answer.
pub fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request}\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn command(address: SocketAddr, folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(["confirm-deletion", &format!("file:{}", folder.display()), "--http-addr", &address.to_string()])
        .output()
        .unwrap()
}

/// Runs a thing that blocks while the server in this process answers it.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[actix::test]
async fn a_held_deletion_goes_when_it_is_confirmed() {
    let dir = tempfile::tempdir().unwrap();
    let all: String = (0..20).map(|n| entry(&format!("e{n}"), &format!("host-{n}.example"))).collect();
    let (path, folder) = (dir.path().join("a.yaml"), dir.path().to_path_buf());
    fs::write(&path, &all).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| c.inputs.registry.services.len() == 20).await;
    let (http, board) = (running.addresses.http, running.sources[0].board.clone());
    let source = format!("file:{}", folder.display());
    let post = format!("POST /debug/sourcez/confirm?source={source} HTTP/1.0");

    let (request, there) = (post.clone(), folder.clone());
    assert!(aside(move || ask(http, &request)).await.starts_with("HTTP/1.0 409"));
    let refused = aside(move || command(http, &there)).await;
    assert_eq!(refused.status.code(), Some(65));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("holds no deletion back"));
    let unknown = aside(move || ask(http, "POST /debug/sourcez/confirm?source=x HTTP/1.0")).await;
    assert!(unknown.starts_with("HTTP/1.0 404") && unknown.contains(&source), "{unknown}");

    for by_command in [true, false] {
        fs::write(&path, entry("e0", "host-0.example")).unwrap();
        tokio::time::timeout(DEADLINE, board.until(|r| r.state == SourceState::Holding)).await.unwrap();
        let shown = aside(move || ask(http, "GET /debug/sourcez HTTP/1.0")).await;
        assert!(shown.contains(&format!("pilothouse confirm-deletion '{source}'")), "{shown}");
        let request = format!("{post}\r\nOrigin: http://elsewhere.example");
        assert!(aside(move || ask(http, &request)).await.starts_with("HTTP/1.0 403"));
        assert_eq!(running.registry.snapshot().services.len(), 20);
        if by_command {
            let there = folder.clone();
            let done = aside(move || command(http, &there)).await;
            assert!(
                done.status.success() && String::from_utf8_lossy(&done.stdout).starts_with("19 objects"),
                "{done:?}"
            );
        } else {
            let request = post.clone();
            assert!(aside(move || ask(http, &request)).await.starts_with("HTTP/1.0 200"));
        }
        until(&running, |c| c.inputs.registry.services.len() == 1).await;
        fs::write(&path, &all).unwrap();
        until(&running, |c| c.inputs.registry.services.len() == 20).await;
    }
    end(running).await;
}
