//! One demand of a test on an answer: the request, its destination, and the expected answer.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use serde_json::Value;

use super::{
    certificates::{CERTIFICATES, Pair, chain},
    client::{self, Answer, Connection, Target, Tls},
    compare, text,
};

/// The protocol of a demand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Speech {
    Http,
    Grpc,
    Tcp,
}

/// A demand, ready to be sent.
pub struct Ask<'a> {
    pub demand: &'a Value,
    pub speech: Speech,
    /// Where the port that is asked is bound.
    pub address: SocketAddr,
    /// The Gateway's address as its clients know it, with the port unless that is the scheme's own.
    pub host: String,
    /// The certificates that may be shown; empty where TLS is not terminated on the way.
    pub certificates: Vec<&'a Pair>,
}

/// The expectation of a demand, under either of its names in the recording.
pub fn expected(demand: &Value) -> &Value {
    if demand["exp"].is_null() { &demand["expected"] } else { &demand["exp"] }
}

impl Ask<'_> {
    fn name(&self) -> &str {
        text(&self.demand["check"])
    }

    fn scheme(&self) -> &'static str {
        if self.name().starts_with("https") { "https" } else { "http" }
    }

    fn host(&self) -> String {
        let expected = expected(self.demand);
        let named = [&expected["request"]["headers"]["Host"], &expected["request"]["host"]];
        let authority = expected["requestMetadata"]["authority"].as_str();
        let host = named.into_iter().find_map(Value::as_str).or(authority).filter(|h| !h.is_empty());
        host.unwrap_or(&self.host).to_string()
    }

    /// Where it goes, and how.
    pub fn target(&self) -> Target<'_> {
        let over_tls = self.scheme() == "https" || self.demand["useTLS"] == true || self.name().starts_with("tls");
        let identity = if self.scheme() == "https" { self.identity() } else { None };
        let tls = Tls { server_name: text(&self.demand["serverName"]), identity };
        let protocol = text(&expected(self.demand)["request"]["protocol"]);
        let http2 = self.speech == Speech::Grpc || matches!(protocol, "H2" | "H2C_PRIOR_KNOWLEDGE");
        Target { address: self.address, tls: over_tls.then_some(tls), http2 }
    }

    /// The recording does not say which certificate the client shows; the words of the case do.
    fn identity(&self) -> Option<&'static Pair> {
        let [default, per_port] = &CERTIFICATES.clients;
        let of_port = text(&self.demand["address"]).ends_with(":8443");
        let (matching, other) = if of_port { (per_port, default) } else { (default, per_port) };
        let case = text(&self.demand["case"]);
        if case.contains("without client certificate") {
            return None;
        }
        let wrong = self.name().ends_with("Fails") || case.contains("non-matching");
        Some(if wrong { other } else { matching })
    }

    /// The request, for HTTP and gRPC.
    pub fn request(&self) -> Request<Full<Bytes>> {
        let expected = expected(self.demand);
        let sent = &expected["request"];
        let mut path = sent["path"].as_str().unwrap_or("/").to_string();
        let mut builder = Request::builder().method(sent["method"].as_str().unwrap_or("GET"));
        let mut body = Bytes::new();
        if self.speech == Speech::Grpc {
            path = format!("/gateway_api_conformance.echo_basic.grpcecho.GrpcEcho/{}", method(self.demand));
            builder = builder.method("POST").header("content-type", "application/grpc").header("te", "trailers");
            body = Bytes::from_static(&[0; 5]);
        }
        let metadata = [&sent["headers"], &expected["requestMetadata"]["metadata"]];
        for (name, value) in metadata.into_iter().filter_map(Value::as_object).flatten() {
            if name != "Host" {
                builder = builder.header(name.as_str(), text(value));
            }
        }
        if let Some(wanted) = expected["backendSetResponseHeaders"].as_object() {
            let pairs: Vec<String> = wanted.iter().map(|(name, value)| format!("{name}:{}", text(value))).collect();
            builder = builder.header("x-echo-set-header", pairs.join(","));
        }
        let uri = format!("{}://{}{path}", self.scheme(), self.host());
        builder.uri(uri).body(Full::from(body)).unwrap()
    }

    /// Asks once. `Ok` when the answer is the expected one.
    pub async fn once(&self) -> Result<(), String> {
        let name = self.name();
        if name.ends_with("Fails") || name == "tlsConnectionRejected" {
            self.fails().await
        } else {
            self.answered().await
        }
    }

    /// Asks once. `Ok` when the answer is an error of the proxy's own. Over TLS there may be no answer, and where a whole
    /// listener is refused no connection; that the proxy lives and has taken its config is looked at beside this.
    async fn fails(&self) -> Result<(), String> {
        if self.speech == Speech::Tcp {
            return client::say(self.target())
                .await
                .map_or(Ok(()), |(seen, _)| Err(format!("it was answered: {seen}")));
        }
        let answer = async { Connection::open(self.target()).await?.send(self.request()).await };
        match answer.await {
            Ok(answer) if answer.status >= 400 || answer.code().is_some_and(|code| code != 0) => Ok(()),
            Ok(answer) => Err(format!("{}: {}", self.told(), answer.told())),
            Err(_) if self.target().tls.is_some() => Ok(()),
            Err(why) => Err(format!("no answer over HTTP: {why}")),
        }
    }

    /// Asks once. `Ok` when the answer is the expected one.
    async fn answered(&self) -> Result<(), String> {
        let expected = expected(self.demand);
        if self.speech == Speech::Tcp {
            let (seen, certificate) = client::say(self.target()).await?;
            self.known(certificate.as_ref().map(AsRef::as_ref))?;
            compare::backend(expected, &seen)?;
            let encrypted = expected["backendIsTLS"] == true;
            let same = seen["tls"].is_null() != encrypted && (!encrypted || seen["tls"]["sni"] == expected["hostname"]);
            return if same { Ok(()) } else { Err(format!("the backend saw {seen}")) };
        }
        let answer = Connection::open(self.target()).await?.send(self.request()).await?;
        self.known(answer.certificate.as_ref().map(AsRef::as_ref))?;
        self.compare(&answer).map_err(|why| format!("{}: {}: {why}", self.told(), answer.told()))
    }

    /// The request in words that are the same in every run.
    fn told(&self) -> String {
        let request = self.request();
        let version = if self.target().http2 { "HTTP/2" } else { "HTTP/1.1" };
        let name = self.target().tls.map(|tls| format!(" for {}", tls.server_name)).unwrap_or_default();
        format!("{} {} over {version}{name}", request.method(), request.uri())
    }

    /// Whether an answer is the expected one.
    pub fn compare(&self, answer: &Answer) -> Result<(), String> {
        match self.speech {
            Speech::Grpc if self.name() != "meshRequest" => compare::grpc(expected(self.demand), answer),
            _ => compare::http(expected(self.demand), (self.scheme(), &self.host()), answer),
        }
    }

    /// The server has shown a certificate that the listener names.
    fn known(&self, certificate: Option<&[u8]>) -> Result<(), String> {
        let Some(shown) = certificate.filter(|_| !self.certificates.is_empty()) else { return Ok(()) };
        let named =
            self.certificates.iter().any(|pair| chain(&pair.chain).first().is_some_and(|c| c.as_ref() == shown));
        if named { Ok(()) } else { Err("another certificate than the listener's".to_string()) }
    }
}

/// The method of a gRPC request. The recording has it in the words of the case, or not at all: then the second backend
/// stands for the second method.
fn method(demand: &Value) -> &str {
    let named = text(&demand["case"]).split("GrpcEcho/").nth(1).and_then(|rest| rest.split('\'').next());
    named.unwrap_or(if demand["expected"]["backend"] == "grpc-infra-backend-v2" { "EchoTwo" } else { "Echo" })
}
