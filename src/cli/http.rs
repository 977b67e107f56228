//! A running server's admin pages: their address, and one plain HTTP request to them.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use serde_json::Value;

use super::{Refusal, server::split_address};

/// Time limit for an answer of a running server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Limit of an answer in bytes; a longer one is not from pilothouse.
const LONGEST_ANSWER: u64 = 1 << 30;

/// The server to send the request to.
#[derive(Debug, Clone, Args)]
pub struct ServerArgs {
    /// Address of the server's admin pages.
    #[arg(
        long,
        alias = "httpAddr",
        env = "PILOTHOUSE_HTTP_ADDR",
        default_value = "127.0.0.1:8080",
        value_name = "HOST:PORT",
        value_parser = server_address
    )]
    pub http_addr: String,
    /// File with a token that proves an identity to a server on another machine. HTTP is plain text: put TLS in between.
    #[arg(long, env = "PILOTHOUSE_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

impl ServerArgs {
    /// A page in JSON.
    ///
    /// # Errors
    /// A server that does not answer with one.
    pub(super) fn fetch(&self, path: &str) -> anyhow::Result<Value> {
        let token = self.token()?;
        fetch_as(&self.http_addr, path, token.as_deref()).with_context(|| self.place())
    }

    /// Sends a request, and reads the answer to its end.
    ///
    /// # Errors
    /// A server that does not answer, or not in HTTP.
    pub(super) fn ask(&self, method: &str, path: &str, body: &str) -> anyhow::Result<HttpResponse> {
        let token = self.token()?;
        ask(method, &self.http_addr, path, body, token.as_deref())
            .with_context(|| format!("asking http://{}{path}", self.http_addr))
            .with_context(|| self.place())
    }
}

impl ServerArgs {
    fn place(&self) -> String {
        format!("--http-addr {}", self.http_addr)
    }

    fn token(&self) -> anyhow::Result<Option<String>> {
        let Some(file) = &self.token_file else { return Ok(None) };
        let refused = |reason: String| Refusal(format!("--token-file {}: {reason}", file.display()));
        let token = std::fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
        let token = token.trim();
        let is_one = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        if is_one { Ok(Some(token.to_string())) } else { Err(refused("not a token".to_string()).into()) }
    }
}

/// Reads HOST:PORT, also as the URL that users copy from a browser.
pub(super) fn address(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    split_address(address).map(|_| address.to_string()).ok_or_else(|| format!("{text:?} is not HOST:PORT"))
}

/// As [`address`]. A listener on all interfaces, which the variable of a container names, is reached on loopback.
fn server_address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some(("" | "0.0.0.0" | "*", port)) => address(&format!("127.0.0.1:{port}")),
        Some(("[::]", port)) => address(&format!("[::1]:{port}")),
        _ => address(text),
    }
}

/// An answer: status and body.
pub(super) struct HttpResponse {
    /// HTTP status.
    pub(super) status: u16,
    /// The whole body.
    pub(super) body: Vec<u8>,
}

fn ask(method: &str, address: &str, path: &str, body: &str, token: Option<&str>) -> anyhow::Result<HttpResponse> {
    let proof = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAccept: application/json\r\nConnection: close\r\n{proof}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut answer)?;
    parse(answer)
}

/// Reads an answer that ends with its connection.
fn parse(mut answer: Vec<u8>) -> anyhow::Result<HttpResponse> {
    let split = answer.windows(4).position(|w| w == b"\r\n\r\n").context("the answer has no body")?;
    let body = answer.split_off(split + 4);
    let head = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    let status = head.split_whitespace().nth(1).and_then(|s| s.parse().ok()).context("the answer has no status")?;
    let chunked = head.lines().any(|line| line.starts_with("transfer-encoding:") && line.ends_with("chunked"));
    let body = if chunked { joined(&body).context("the answer breaks off")? } else { body };
    Ok(HttpResponse { status, body })
}

/// The chunks of a body in one piece; `None` where it breaks off.
fn joined(mut chunks: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = chunks.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(chunks.get(..line)?).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        let start = line + 2;
        body.extend_from_slice(chunks.get(start..start.checked_add(size)?)?);
        chunks = chunks.get(start + size + 2..)?;
    }
}

/// A page in JSON of any server in plain HTTP.
///
/// # Errors
/// A server that does not answer with one; the error names the page.
pub(super) fn fetch(address: &str, path: &str) -> anyhow::Result<Value> {
    fetch_as(address, path, None)
}

fn fetch_as(address: &str, path: &str, token: Option<&str>) -> anyhow::Result<Value> {
    let fetched = || {
        let answer = ask("GET", address, path, "", token)?;
        anyhow::ensure!(answer.status == 200, "the server answered {}", answer.status);
        serde_json::from_slice(&answer.body).context("the answer is not JSON")
    };
    fetched().with_context(|| format!("asking http://{address}{path}"))
}

/// A value escaped for a query.
pub(super) fn quoted(value: &str) -> String {
    value
        .bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                char::from(b).to_string()
            }
            b => format!("%{b:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_come_in_one_piece_or_in_chunks() {
        let body = |text: &str| parse(text.as_bytes().to_vec()).map(|answer| answer.body);
        assert_eq!(body("HTTP/1.1 200 OK\r\nA: b\r\n\r\nall").unwrap(), b"all");
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(body(&format!("{head}3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n")).unwrap(), b"abcde");
        for broken in ["3\r\nab", "z\r\n", "ffffffffffffffff\r\na", "", "1\r\na"] {
            assert!(body(&format!("{head}{broken}")).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_listener_on_all_interfaces_is_reached_on_loopback() {
        let given = [":8080", "0.0.0.0:1", "[::]:2", "plane.example:3", "[fd00::1]:4"];
        let reached = given.map(|address| server_address(address).unwrap());
        assert_eq!(reached, ["127.0.0.1:8080", "127.0.0.1:1", "[::1]:2", "plane.example:3", "[fd00::1]:4"]);
        assert!(server_address(":").is_err() && server_address("nonsense").is_err());
    }

    #[test]
    fn a_token_of_a_file_is_sent_and_anything_else_is_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // A client that is hung up on while it writes sees no answer.
            let (mut request, mut byte) = (Vec::new(), [0]);
            while !request.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{}").unwrap();
            String::from_utf8(request).unwrap()
        });
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc.def\n").unwrap();
        let server = ServerArgs { http_addr: address, token_file: Some(file.path().to_path_buf()) };
        assert_eq!(server.fetch("/x").unwrap(), serde_json::json!({}));
        assert!(answering.join().unwrap().contains("\r\nAuthorization: Bearer abc.def\r\n"));
        std::fs::write(file.path(), "two\nlines").unwrap();
        assert!(server.fetch("/x").unwrap_err().to_string().contains("not a token"));
    }

    #[test]
    fn reserved_characters_of_queries_are_quoted() {
        assert_eq!(quoted("file:/etc/a b&c=%"), "file:/etc/a%20b%26c%3D%25");
    }
}
