//! A running server's admin pages: their address, and one plain HTTP request to them.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use serde_json::Value;

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
        value_name = "HOST:PORT"
    )]
    pub http_addr: String,
}

impl ServerArgs {
    /// A page in JSON.
    ///
    /// # Errors
    /// A server that does not answer with one.
    pub(super) fn fetch(&self, path: &str) -> anyhow::Result<Value> {
        fetch(&self.http_addr, path).with_context(|| format!("asking http://{}{path}", self.http_addr))
    }

    /// Sends a request, and reads the answer to its end.
    ///
    /// # Errors
    /// A server that does not answer, or not in HTTP.
    pub(super) fn ask(&self, method: &str, path: &str) -> anyhow::Result<HttpResponse> {
        ask(method, &self.http_addr, path).with_context(|| format!("asking http://{}{path}", self.http_addr))
    }
}

/// An answer: status and body.
pub(super) struct HttpResponse {
    /// HTTP status.
    pub(super) status: u16,
    /// The whole body.
    pub(super) body: Vec<u8>,
}

fn ask(method: &str, address: &str, path: &str) -> anyhow::Result<HttpResponse> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\nContent-Length: 0\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut answer)?;
    let split = answer.windows(4).position(|w| w == b"\r\n\r\n").context("the answer has no body")?;
    let head = String::from_utf8_lossy(&answer[..split]);
    let status = head.split_whitespace().nth(1).and_then(|s| s.parse().ok()).context("the answer has no status")?;
    Ok(HttpResponse { status, body: answer.split_off(split + 4) })
}

fn fetch(address: &str, path: &str) -> anyhow::Result<Value> {
    let answer = ask("GET", address, path)?;
    anyhow::ensure!(answer.status == 200, "the server answered {}", answer.status);
    serde_json::from_slice(&answer.body).context("the answer is not JSON")
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
    fn reserved_characters_of_queries_are_quoted() {
        assert_eq!(quoted("file:/etc/a b&c=%"), "file:/etc/a%20b%26c%3D%25");
    }
}
