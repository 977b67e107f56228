//! Floods of HTTP/2 frames by hand against the real process: the connection of the attacker ends, everybody else is served.

mod floods;

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use crate::{
    binary::Binary,
    identity::{clusters, eventually, node},
    stage::{DEADLINE, entry},
};
use pilothouse::testing::AdsClient;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ENHANCE_YOUR_CALM: u32 = 11;
const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// Megabytes that may stay of an attack.
const STAYS: usize = 100;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The headers of a call (HPACK without its table).
fn call() -> Vec<u8> {
    // POST and http by their numbers, `:path`, `:authority` and `content-type` by those of their names.
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(&[0x04][..], METHOD), (&[0x01], "localhost"), (&[0x0f, 0x10], "application/grpc")] {
        block.extend(name);
        block.push(u8::try_from(value.len()).unwrap());
        block.extend(value.as_bytes());
    }
    block.extend(b"\x00\x02te\x08trailers");
    block
}

/// A connection that speaks HTTP/2.
struct Connection(TcpStream);

impl Connection {
    fn open(address: SocketAddr) -> Self {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        socket.set_write_timeout(Some(DEADLINE)).unwrap();
        socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        socket.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
        Self(socket)
    }

    /// The next frame: kind, flags and payload; `None` where the connection has ended.
    fn next(&mut self) -> Option<(u8, u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        assert!(length <= 16 << 10, "no frame of HTTP/2: {head:?}");
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).ok()?;
        Some((head[3], head[4], payload))
    }

    /// Waits until everything that was sent is taken in.
    fn echo(&mut self) -> Option<()> {
        self.0.write_all(&frame(PING, 0, 0, &[0; 8])).ok()?;
        while self.next()?.0 != PING {}
        Some(())
    }

    /// Writes until the connection does not take any more; gives the bytes that it took.
    fn flood(mut self, mut next: impl FnMut() -> Vec<u8>, most: usize) -> (usize, Option<u32>) {
        let mut reader = Self(self.0.try_clone().unwrap());
        let reading = std::thread::spawn(move || {
            let mut reason = None;
            while let Some((kind, _, payload)) = reader.next() {
                if kind == GOAWAY {
                    reason = payload.get(4..8).map(|code| u32::from_be_bytes(code.try_into().unwrap()));
                }
            }
            reason
        });
        let mut taken = 0;
        while taken < most {
            let bytes = next();
            if self.0.write_all(&bytes).is_err() {
                break;
            }
            taken += bytes.len();
        }
        let _ = self.0.shutdown(std::net::Shutdown::Write);
        (taken, reading.join().unwrap())
    }
}

/// The process with one service.
struct Attacked {
    _folder: tempfile::TempDir,
    server: Binary,
    grpc: SocketAddr,
    http: SocketAddr,
}

impl Attacked {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.yaml"), entry("a", "a.example")).unwrap();
        let mut server = Binary::serve(folder.path(), &[], &[]);
        let (grpc, http) = server.addresses();
        let attacked = Self { _folder: folder, server, grpc, http };
        attacked.is_well().await;
        attacked
    }

    /// A client is served, and a page is answered.
    async fn is_well(&self) {
        let grpc = self.grpc;
        eventually("a client is served", || async move {
            let Ok(client) = AdsClient::connect(grpc, "10.0.0.1").await else { return false };
            clusters(&client.with_node(node("shop"))).await.is_ok_and(|count| count > 0)
        })
        .await;
        let mut page = TcpStream::connect(self.http).unwrap();
        page.set_read_timeout(Some(DEADLINE)).unwrap();
        page.write_all(b"GET /ready HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        page.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    async fn ends_unharmed(mut self, before: usize) {
        self.is_well().await;
        let stays = self.server.resident().saturating_sub(before);
        assert!(stays < STAYS, "{stays} MB stay");
        assert_eq!(self.server.lines_with("panic"), 0);
    }
}

/// CVE-2023-44487, rapid reset: calls that are taken back as soon as they are made cost their sender nothing.
#[tokio::test]
async fn cve_2023_44487_calls_that_are_reset_at_once_end_their_connection() {
    let mut attacked = Attacked::start().await;
    let (before, lines) = (attacked.server.resident(), attacked.server.lines());
    let block = call();
    // More than the lines of a kind that are written in a row.
    for _ in 0..300 {
        let mut stream = 1;
        let burst = || {
            let mut bytes = Vec::new();
            for _ in 0..100 {
                bytes.extend(frame(HEADERS, END_HEADERS, stream, &block));
                bytes.extend(frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
                stream += 2;
            }
            bytes
        };
        let (taken, reason) = Connection::open(attacked.grpc).flood(burst, 64 << 20);
        assert!(taken < 64 << 20, "the server goes on to take them");
        // A server that closes with bytes unread may lose its own last frame on the way.
        assert!(matches!(reason, None | Some(ENHANCE_YOUR_CALM)), "{reason:?}");
    }
    // One that waits until its call has begun takes the time of a whole call for each.
    let mut patient = Connection::open(attacked.grpc);
    for number in 0..500u32 {
        patient.0.write_all(&frame(HEADERS, END_HEADERS, number * 2 + 1, &block)).unwrap();
        patient.echo().expect("an open connection");
        patient.0.write_all(&frame(RST_STREAM, 0, number * 2 + 1, &8u32.to_be_bytes())).unwrap();
    }
    attacked.is_well().await;
    let lines = attacked.server.lines() - lines;
    assert!(lines <= 160, "{lines} lines: {:#?}", attacked.server.last_lines(20));
    attacked.ends_unharmed(before).await;
}

/// CVE-2024-27316 and its kin: headers that never end.
#[tokio::test]
async fn cve_2024_27316_headers_without_end_end_their_connection() {
    let attacked = Attacked::start().await;
    let before = attacked.server.resident();
    for _ in 0..5 {
        let mut begun = false;
        let more = || {
            // A header of a kilobyte, sixteen of them in a frame.
            let header = [&b"\x00\x01x\x7f\x81\x07"[..], &[b'a'; 127 + 0x381]].concat();
            let (kind, block) = if begun { (CONTINUATION, Vec::new()) } else { (HEADERS, call()) };
            begun = true;
            frame(kind, 0, 1, &[block, header.repeat(14)].concat())
        };
        let (taken, _) = Connection::open(attacked.grpc).flood(more, 64 << 20);
        assert!(taken < 64 << 20, "the server goes on to take them");
    }
    attacked.ends_unharmed(before).await;
}

/// The pages speak HTTP/1.1 alone.
#[tokio::test]
async fn cve_2023_44487_the_pages_take_no_streams_that_could_be_reset() {
    let attacked = Attacked::start().await;
    let before = attacked.server.resident();
    let mut socket = TcpStream::connect(attacked.http).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let _ = socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let _ = socket.write_all(&frame(SETTINGS, 0, 0, &[]));
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
    attacked.ends_unharmed(before).await;
}
