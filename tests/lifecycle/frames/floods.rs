//! Frames that HTTP/2 allows and that nobody needs in such numbers, and calls that are made to fail. Healthy clients are timed
//! during each.

use std::{io::Write, net::SocketAddr, time::Duration};

use pilothouse::{
    proto::envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
    xds::ResourceType::Cluster,
};
use prost::Message;

use super::{Connection, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, SETTINGS, WINDOW_UPDATE, call, frame};
use crate::attacks::{Attacked, size};

/// The setting of the window of each stream.
const INITIAL_WINDOW: u8 = 4;

fn setting(number: u8, value: u32) -> Vec<u8> {
    let value = value.to_be_bytes();
    frame(SETTINGS, 0, 0, &[0, number, value[0], value[1], value[2], value[3]])
}

fn update(stream: u32, by: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

/// The number of the `n`th stream of a client.
const fn stream(n: u32) -> u32 {
    n * 2 + 1
}

/// Runs on a thread of its own, whatever the healthy clients do.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Writes as [`Connection::flood`] does and reads nothing, until the server takes no more.
fn deaf(mut connection: Connection, mut next: impl FnMut() -> Vec<u8>, most: usize) -> Connection {
    connection.0.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut taken = 0;
    while taken < most {
        let bytes = next();
        if connection.0.write_all(&bytes).is_err() {
            break;
        }
        taken += bytes.len();
    }
    connection
}

/// A hundred of these frames at a time.
fn hundred(frames: fn(u32) -> Vec<u8>) -> impl FnMut() -> Vec<u8> {
    let mut number = 0;
    move || {
        number += 100;
        (number - 100..number).flat_map(frames).collect()
    }
}

/// A connection with one call that is open.
fn opened(address: SocketAddr) -> Connection {
    let mut connection = Connection::open(address);
    connection.0.write_all(&frame(HEADERS, END_HEADERS, 1, &call())).unwrap();
    connection
}

/// CVE-2019-9512, 9513, 9515, 9518 and their kin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2019_9512_frames_that_ask_for_nothing() {
    let floods: [(&str, fn(u32) -> Vec<u8>); 8] = [
        ("SETTINGS", |_| frame(SETTINGS, 0, 0, &[])),
        ("SETTINGS that change the window", |n| setting(INITIAL_WINDOW, 65_535 - n % 2)),
        ("PING", |_| frame(PING, 0, 0, &[0; 8])),
        ("WINDOW_UPDATE", |_| update(0, 1)),
        ("WINDOW_UPDATE of a stream", |_| update(1, 1)),
        ("empty DATA", |_| frame(DATA, 0, 1, &[])),
        ("PRIORITY", |n| frame(PRIORITY, 0, stream(n % 1000 + 1), &[0, 0, 0, 1, 7])),
        ("frames of no known type", |_| frame(0xbe, 0, 0, &[0; 16])),
    ];
    let mut attacked = Attacked::plain().await;
    let address = attacked.address;
    for (name, frames) in floods {
        let flooding = aside(move || {
            let most = size(200 << 10, 32 << 20);
            let deaf = deaf(opened(address), hundred(frames), most);
            // Whether it goes on to take them is up to the server.
            opened(address).flood(hundred(frames), most);
            deaf
        });
        attacked.under(name, flooding).await;
    }
}

/// CVE-2025-8671, MadeYouReset: calls that the client makes the server take back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2025_8671_calls_that_are_made_to_fail() {
    let ways: [(&str, fn(u32) -> Vec<u8>); 5] = [
        ("a window of nothing more", |n| update(stream(n), 0)),
        ("a window beyond its bound", |n| update(stream(n), i32::MAX as u32)),
        ("a stream that depends on itself", |n| {
            frame(PRIORITY, 0, stream(n), &[&stream(n).to_be_bytes()[..], &[7]].concat())
        }),
        ("a priority of a wrong length", |n| frame(PRIORITY, 0, stream(n), &[0; 4])),
        ("more than the window", |n| frame(DATA, 0, stream(n), &[0; 16 << 10]).repeat(5)),
    ];
    let mut attacked = Attacked::plain().await;
    let address = attacked.address;
    for (name, way) in ways {
        let flooding = aside(move || {
            let block = call();
            for _ in 0..size(2, 50) {
                let (mut number, most) = (0, 32 << 20);
                let next = || {
                    let call = frame(HEADERS, END_HEADERS, stream(number), &block);
                    number += 1;
                    [call, way(number - 1)].concat()
                };
                let (taken, reason) = Connection::open(address).flood(next, most);
                println!("{name}: {taken} bytes in {number} calls were taken; {reason:?}");
                assert!(taken < most, "{name}: the server goes on to take them");
            }
        });
        attacked.under(name, flooding).await;
    }
}

/// CVE-2019-9511, 9517: the client takes a byte at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2019_9511_windows_of_a_byte() {
    let mut attacked = Attacked::plain().await;
    let address = attacked.address;
    let taking = aside(move || {
        let id = "sidecar~10.0.0.5~tiny.shop~shop.svc.cluster.local".to_string();
        let node = Some(Node { id, ..Node::default() });
        let asked = DiscoveryRequest { node, type_url: Cluster.url().into(), ..DiscoveryRequest::default() };
        let message = asked.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let message = [&[0][..], &length, &message].concat();
        let (mut held, block) = (Vec::new(), call());
        for _ in 0..size(2, 20) {
            let mut connection = Connection::open(address);
            connection.0.write_all(&setting(INITIAL_WINDOW, 1)).unwrap();
            for number in 0..50 {
                let begun = frame(HEADERS, END_HEADERS, stream(number), &block);
                connection.0.write_all(&[begun, frame(DATA, 0, stream(number), &message)].concat()).unwrap();
            }
            let mut bytes = 0;
            for _ in 0..size(50, 2000) {
                let updates: Vec<u8> = (0..50).flat_map(|number| update(stream(number), 1)).collect();
                connection.0.write_all(&updates).unwrap();
                connection.0.write_all(&frame(PING, 0, 0, &[0; 8])).unwrap();
                loop {
                    let (kind, _, payload) = connection.next().expect("an open connection");
                    bytes += if kind == DATA { payload.len() } else { 0 };
                    if kind == PING {
                        break;
                    }
                }
            }
            assert!(bytes > 0, "nothing is sent");
            held.push(connection);
        }
        held
    });
    attacked.under("windows of a byte", taking).await;
}

/// Calls that never ask for anything, and a window that changes for all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_calls_that_never_ask() {
    let mut attacked = Attacked::plain().await;
    let address = attacked.address;
    let opening = aside(move || {
        let (mut connection, block, calls) = (Connection::open(address), call(), 10_000);
        let mut reader = Connection(connection.0.try_clone().unwrap());
        // Each is answered by headers; those of a call that is refused end it.
        let reading = std::thread::spawn(move || {
            let (mut answered, mut refused) = (0, 0);
            while answered < calls {
                let (kind, flags, _) = reader.next().expect("an open connection");
                answered += u32::from(kind == HEADERS);
                refused += u32::from(kind == HEADERS && flags & END_STREAM != 0);
            }
            refused
        });
        for number in 0..calls {
            connection.0.write_all(&frame(HEADERS, END_HEADERS, stream(number), &block)).unwrap();
        }
        for number in 0..size(50, 1000) as u32 {
            connection.0.write_all(&setting(INITIAL_WINDOW, 65_535 - number % 2)).unwrap();
        }
        let refused = reading.join().unwrap();
        println!("{refused} of {calls} calls are refused");
        assert!((1000..9000).contains(&refused), "{refused} of {calls} are refused");
        connection
    });
    attacked.under("10,000 calls that never ask", opening).await;
}
