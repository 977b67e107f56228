//! The Unix socket of the real process: users of this machine and their identities, its file, and another process in its place.

use std::{
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
};

use hyper_util::rt::TokioIo;
use pilothouse::testing::{AdsClient, ClientError};
use rcgen::KeyPair;
use serde_json::Value;
use tempfile::TempDir;
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};

use crate::{
    binary::Binary,
    identity::{World, certificate, clusters, code, decoded, node, secrets, served, text},
    skipped::skipped,
    stage::DEADLINE,
};

/// A folder that every user may enter, and a socket in it.
struct Place {
    _folder: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join("xds.sock");
        Self { _folder: folder, path }
    }
}

fn serve(world: &World, path: &Path, more: &[&str]) -> Binary {
    let own = ["--grpc-unix-socket", path.to_str().unwrap(), "--state-dir", world.state.path().to_str().unwrap()];
    let mut server = Binary::serve(world.config.path(), &[&own[..], more].concat(), &[]);
    server.until("addresses", |line| serde_json::from_str::<Value>(line).ok()?["grpc"].as_str().map(|_| ()));
    server
}

/// A client over a connection that stands.
async fn over(stream: UnixStream) -> AdsClient {
    AdsClient::over(channel(stream).await, node("shop"))
}

async fn channel(stream: UnixStream) -> Channel {
    stream.set_nonblocking(true).unwrap();
    let mut stream = Some(stream);
    let connect = tower::service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| std::io::Error::other("one connection is enough"));
        async move { Ok::<_, std::io::Error>(TokioIo::new(tokio::net::UnixStream::from_std(stream?)?)) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connect).await.unwrap()
}

fn connect(path: &Path) -> UnixStream {
    UnixStream::connect(path).unwrap()
}

#[tokio::test]
async fn the_user_of_the_process_has_the_identity_of_its_node() {
    let (world, place) = (World::new(), Place::new());
    let server = serve(&world, &place.path, &[]);
    assert_eq!(std::fs::metadata(&place.path).unwrap().permissions().mode() & 0o777, 0o600);
    let client = over(connect(&place.path)).await;
    served(&client).await;
    let (sent, _) = secrets(&client).await.unwrap();
    assert!(text(&decoded(&sent), "default").contains("CERTIFICATE"));
    // A token is looked at first, and limits the client to its identity.
    let joined = client.with_token(&world.token(&["-n", "shop"]));
    assert!(clusters(&joined).await.is_ok());
    assert_eq!(code(clusters(&joined.with_node(node("other"))).await), Code::PermissionDenied);
    assert_eq!(code(clusters(&client.with_token("made-up")).await), Code::Unauthenticated);
    // A certificate is of an identity, which the request does not name.
    let key = KeyPair::generate().unwrap();
    let unnamed = certificate(channel(connect(&place.path)).await, None, &key, 60).await.unwrap_err();
    assert_eq!(unnamed.code(), Code::Unauthenticated, "{unnamed}");
    let token = world.token(&["-n", "shop", "-s", "cart"]);
    certificate(channel(connect(&place.path)).await, Some(&token), &key, 60).await.unwrap();

    // A second process leaves the first one alone; a third takes the place of one that was killed.
    let own = ["--grpc-unix-socket", place.path.to_str().unwrap()];
    let mut second = Binary::serve(world.config.path(), &own, &[]);
    second.until("the reason", |line| line.contains("another process listens there").then_some(()));
    assert!(!second.ends_within(DEADLINE).success());
    assert!(clusters(&client).await.is_ok());
    server.kill();
    assert!(place.path.exists(), "a killed process removes nothing");
    let mut third = serve(&world, &place.path, &[]);
    served(&over(connect(&place.path)).await).await;
    third.terminate();
    assert!(third.ends_within(DEADLINE).success());
    assert!(!place.path.exists(), "the socket goes with its process");

    std::fs::write(&place.path, "a file").unwrap();
    let mut refused = Binary::serve(world.config.path(), &own, &[]);
    refused.until("the reason", |line| line.contains("a file that is no socket is there").then_some(()));
    assert!(!refused.ends_within(DEADLINE).success());
    assert_eq!(std::fs::read_to_string(&place.path).unwrap(), "a file");
}

const STRANGER: u32 = 54_321;

/// A connection that the system takes for one of another user's: a thread of its own becomes that user for it. `None` where
/// this process may not do so.
fn connect_as(user: u32, path: &Path) -> Option<std::io::Result<UnixStream>> {
    let path = path.to_path_buf();
    let connecting = std::thread::spawn(move || {
        let user = rustix::thread::Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(user, user, user).ok()?;
        Some(UnixStream::connect(path))
    });
    connecting.join().unwrap()
}

#[tokio::test]
async fn another_user_has_the_identity_that_a_flag_names_or_none() {
    let (world, place) = (World::new(), Place::new());
    let server = serve(&world, &place.path, &[]);
    let Some(connected) = connect_as(STRANGER, &place.path) else {
        skipped("this process may not become another user (it is not root)");
        return;
    };
    assert_eq!(connected.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied, "the mode keeps others out");
    drop(server);

    let open = ["--grpc-unix-socket-mode", "0666"];
    let server = serve(&world, &place.path, &open);
    served(&over(connect(&place.path)).await).await;
    let stranger = over(connect_as(STRANGER, &place.path).unwrap().unwrap()).await;
    match clusters(&stranger).await {
        Err(ClientError::Status(status)) => {
            assert_eq!(status.code(), Code::Unauthenticated);
            assert!(status.message().contains("user 54321"), "{status}");
        }
        other => panic!("{other:?}"),
    }
    assert!(clusters(&stranger.with_token(&world.token(&["-n", "shop"]))).await.is_ok(), "a token proves it");
    drop(server);

    let server = serve(&world, &place.path, &[&open[..], &["--unix-peer", "54321=shop/cart"]].concat());
    served(&over(connect(&place.path)).await).await;
    let cart = over(connect_as(STRANGER, &place.path).unwrap().unwrap()).await;
    assert!(clusters(&cart).await.unwrap() > 0);
    assert_eq!(code(clusters(&cart.with_node(node("other"))).await), Code::PermissionDenied);
    let key = KeyPair::generate().unwrap();
    let connection = channel(connect_as(STRANGER, &place.path).unwrap().unwrap()).await;
    certificate(connection, None, &key, 60).await.unwrap();
    drop(server);

    let twice = ["--grpc-unix-socket", "/tmp/x", "--unix-peer", "1=a/b,1=a/c"];
    let mut refused = Binary::serve(world.config.path(), &twice, &[]);
    refused.until("the reason", |line| line.contains("more than one identity for the user 1").then_some(()));
    assert!(!refused.ends_within(DEADLINE).success());
}
