//! Both ends of a handover, and wrong ones.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::OwnedFd,
    path::Path,
};

use tokio::net::UnixListener;

use super::*;
use crate::runtime::Shutdown;

fn offer() -> (Offer, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (Offer { name: "grpc".into(), address: address.to_string(), socket: OwnedFd::from(listener) }, address)
}

#[tokio::test]
async fn sockets_go_to_one_successor_and_the_others_wait_or_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handover");
    assert!(Predecessor::ask(&path).await.unwrap().is_none(), "nobody listens");
    let (listener, shutdown, (offered, address)) = (UnixListener::bind(&path).unwrap(), Shutdown::default(), offer());
    let running = tokio::spawn(async move { hand_over(listener, vec![offered], &shutdown).await });

    let (first, handed) = Predecessor::ask(&path).await.unwrap().unwrap();
    assert_eq!((first.process, &*first.version), (std::process::id(), env!("CARGO_PKG_VERSION")));
    assert_eq!((&*handed[0].name, &*handed[0].address), ("grpc", &*address.to_string()));
    let second = Predecessor::ask(&path).await.unwrap_err().to_string();
    assert!(second.contains(&format!("process {} is taking over already", std::process::id())), "{second}");

    // One that ends before it is ready has changed nothing.
    drop((first, handed));
    let (third, mut handed) = loop {
        match Predecessor::ask(&path).await {
            Ok(taken) => break taken.unwrap(),
            Err(HandoverError::Refused { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(!running.is_finished());
    let succeeded = tokio::spawn(third.succeed());
    let taken = running.await.unwrap().unwrap();
    assert!(!succeeded.is_finished(), "the path is not free yet");
    assert_eq!(taken.process, Some(std::process::id() as i32));
    drop(taken);
    succeeded.await.unwrap().unwrap();

    // The socket lives on with the successor alone.
    let listener = TcpListener::from(handed.remove(0).socket);
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"x").unwrap();
    let mut byte = [0];
    listener.accept().unwrap().0.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
}

#[tokio::test]
async fn the_shutdown_ends_the_offer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handover");
    let (listener, shutdown, (offered, address)) = (UnixListener::bind(&path).unwrap(), Shutdown::default(), offer());
    let of_running = shutdown.clone();
    let running = tokio::spawn(async move { hand_over(listener, vec![offered], &of_running).await.is_none() });
    let (waits, _) = Predecessor::ask(&path).await.unwrap().unwrap();
    shutdown.begin();
    assert!(running.await.unwrap());
    waits.ended().await;
    assert!(TcpStream::connect(address).is_err(), "the offered socket is closed with it");
}

/// The error of a successor for a process that answers with this line.
async fn answered(path: &Path, line: &'static str) -> String {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).unwrap();
    let other = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        message::receive(&stream).await.unwrap();
        if !line.is_empty() {
            message::send(&stream, line, &[]).await.unwrap();
        }
    });
    let error = Predecessor::ask(path).await.unwrap_err().to_string();
    other.await.unwrap();
    error
}

#[tokio::test]
async fn another_form_and_strangers_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handover");
    for (line, says) in [
        (
            r#"{"handover": 7, "version": "9.9", "process": 1}"#,
            "(version 9.9) hands over in form 7, and this one takes over in form 1",
        ),
        (r#"{"handover": 1, "version": "1", "process": 1, "sockets": [["grpc", "a"]]}"#, "0 sockets and 1 names"),
        (r#"{"handover": 1, "version": "1", "process": 1, "refused": "not now"}"#, "hands nothing over: not now"),
        ("HTTP/1.1 400 Bad Request", "does not answer as a pilothouse does: expected value"),
        ("", "it closed the connection"),
    ] {
        let error = answered(&path, line).await;
        assert!(error.contains(says) && error.starts_with(path.to_str().unwrap()), "{line}: {error}");
    }
}

#[tokio::test]
async fn wrong_questions_are_refused_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handover");
    let (listener, shutdown, (offered, _)) = (UnixListener::bind(&path).unwrap(), Shutdown::default(), offer());
    let of_running = shutdown.clone();
    let running = tokio::spawn(async move { hand_over(listener, vec![offered], &of_running).await.is_none() });
    for (question, says) in [
        ("GET / HTTP/1.1", "not one of a pilothouse"),
        (r#"{"handover": 2, "version": "0.2.0"}"#, "version 0.2.0 takes over in form 2, this one hands over in form 1"),
    ] {
        let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        message::send(&stream, question, &[]).await.unwrap();
        let (line, sockets) = message::receive(&stream).await.unwrap().unwrap();
        assert!(line.contains(says) && sockets.is_empty(), "{line}");
    }
    assert!(Predecessor::ask(&path).await.unwrap().is_some(), "it offers on");
    shutdown.begin();
    assert!(running.await.unwrap());
}
