//! A small HTTP/1.1 client and echo servers, plain threads over TCP.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Answer {
    /// The value that the echo server received under this name (`name`, `path`, `host`, `peer`, or a header).
    pub fn seen(&self, key: &str) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        body[key].as_str().unwrap_or_default().to_string()
    }
}

/// Sends one request over a connection of its own.
pub fn get(port: u16, host: &str, path: &str, headers: &[(&str, &str)]) -> std::io::Result<Answer> {
    get_at((Ipv4Addr::LOCALHOST, port).into(), host, path, headers)
}

/// As [`get`], from a server at any address.
pub fn get_at(address: SocketAddr, host: &str, path: &str, headers: &[(&str, &str)]) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(20))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    request(&mut stream, host, path, headers)
}

/// Sends one request over a stream and reads the answer to its end.
pub fn request(
    stream: &mut (impl Read + Write),
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> std::io::Result<Answer> {
    call(stream, "GET", host, path, headers)
}

/// As [`request`], with another method.
pub fn call(
    stream: &mut (impl Read + Write),
    method: &str,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> std::io::Result<Answer> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all((text + "\r\n").as_bytes())?;
    let mut reader = BufReader::new(stream);
    let (first, headers) = head(&mut reader)?;
    let status = first.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    let mut body = Vec::new();
    if let Some(length) = headers.get("content-length") {
        body.resize(length.parse().unwrap_or(0), 0);
        reader.read_exact(&mut body)?;
    } else if headers.get("transfer-encoding").is_some_and(|t| t == "chunked") {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk)?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else {
        reader.read_to_end(&mut body)?;
    }
    Ok(Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
}

fn head(reader: &mut impl BufRead) -> std::io::Result<(String, BTreeMap<String, String>)> {
    let mut first = String::new();
    reader.read_line(&mut first)?;
    if first.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.trim().to_string()),
            None => return Ok((first.trim_end().to_string(), headers)),
        };
    }
}

/// An HTTP server that answers with the request, as JSON. `/status/503` in the path (or the header `x-status`) chooses the
/// status, the header `x-delay-ms` a pause.
pub struct Echo {
    pub name: String,
    pub port: u16,
    /// The first so many requests are answered with 503.
    pub fail_first: Arc<AtomicU32>,
    paths: Arc<Mutex<Vec<String>>>,
}

impl Echo {
    pub fn start(name: &str) -> Self {
        Self::start_at(name, (Ipv4Addr::LOCALHOST, 0).into())
    }

    pub fn start_at(name: &str, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        let echo = Self { name: name.to_string(), port, fail_first: Arc::default(), paths: Arc::default() };
        let (name, fail, paths) = (name.to_string(), echo.fail_first.clone(), echo.paths.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (name, fail, paths) = (name.clone(), fail.clone(), paths.clone());
                thread::spawn(move || serve(&stream, &name, &fail, &paths));
            }
        });
        echo
    }

    /// Paths of all requests so far.
    pub fn paths(&self) -> Vec<String> {
        self.paths.lock().unwrap().clone()
    }
}

fn serve(stream: &TcpStream, name: &str, fail: &AtomicU32, paths: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream.try_clone().ok()?;
    loop {
        let (first, headers) = head(&mut reader).ok()?;
        let length = headers.get("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).ok()?;
        let mut words = first.split(' ');
        let (method, path) = (words.next()?.to_string(), words.next()?.to_string());
        paths.lock().ok()?.push(path.clone());
        if let Some(delay) = headers.get("x-delay-ms").and_then(|d| d.parse().ok()) {
            thread::sleep(Duration::from_millis(delay));
        }
        let failing = fail.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
        let wanted =
            path.strip_prefix("/status/").and_then(|s| s.get(..3)).or(headers.get("x-status").map(String::as_str));
        let status = if failing { 503 } else { wanted.and_then(|s| s.parse().ok()).unwrap_or(200u16) };
        let mut seen = serde_json::Map::new();
        seen.extend(headers.into_iter().map(|(k, v)| (k, v.into())));
        seen.insert("name".into(), name.into());
        seen.insert("peer".into(), stream.peer_addr().ok()?.ip().to_string().into());
        seen.insert("path".into(), path.into());
        seen.insert("method".into(), method.into());
        let body = serde_json::Value::Object(seen).to_string();
        let head = format!(
            "HTTP/1.1 {status} Echo\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        writer.write_all((head + &body).as_bytes()).ok()?;
    }
}

/// A TCP server that sends its name and then everything back.
pub fn tcp_echo(name: &'static str) -> u16 {
    tcp_echo_at(name, (Ipv4Addr::LOCALHOST, 0).into())
}

/// As [`tcp_echo`], at this address.
pub fn tcp_echo_at(name: &'static str, address: SocketAddr) -> u16 {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let _ = stream.write_all(name.as_bytes());
                let mut reader = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut reader, &mut stream);
            });
        }
    });
    port
}
