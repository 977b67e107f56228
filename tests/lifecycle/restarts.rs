//! An actor that cannot be kept alive ends the program, with an error and a reason.

use std::fs;

use crate::{
    binary::Binary,
    stage::{DEADLINE, entry},
};

#[test]
fn more_restarts_than_the_rate_end_the_program() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let faults = [("PILOTHOUSE_TEST_FAULTS", "aggregate-cache=1000")];
    let mut server = Binary::serve(dir.path(), &["--max-restarts-per-minute", "2"], &faults);
    let reason = server.until("reason", |line| line.starts_with("pilothouse: ").then(|| line.to_string()));
    assert!(reason.contains("3 restarts within a minute, the last one of aggregate-cache"), "{reason}");
    assert_eq!(server.ends_within(DEADLINE).code(), Some(70));
}

#[test]
fn fewer_restarts_do_not() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let faults = [("PILOTHOUSE_TEST_FAULTS", "aggregate-cache=2")];
    let mut server = Binary::serve(dir.path(), &["--max-restarts-per-minute", "2"], &faults);
    let (_, http) = server.addresses();
    let ready = || {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(http).ok()?;
        write!(stream, "GET /ready HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.0 200").then_some(())
    };
    let start = std::time::Instant::now();
    while ready().is_none() {
        assert!(start.elapsed() < DEADLINE, "not ready");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    server.terminate();
    assert_eq!(server.ends_within(DEADLINE).code(), Some(0));
}
