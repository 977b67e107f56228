//! CUSTOM policies: a live server is asked.

use serde_json::{Value, json};

use super::{Guarded, authorization};
use crate::{
    config::service,
    http::Echo,
    process::{free_port, wait_until},
};

fn custom(provider: &str) -> String {
    let rules = json!([{"to": [{"operation": {"paths": ["/asked/*"]}}]}]);
    authorization("custom", &json!({"action": "CUSTOM", "provider": {"name": provider}, "rules": rules}))
}

fn provider(name: &str, host: &str, port: u16, further: Value) -> Value {
    let mut http = json!({"service": host, "port": port, "timeout": "20s", "pathPrefix": "/check",
        "includeRequestHeadersInCheck": ["x-status"], "includeAdditionalHeadersInCheck": {"x-asked-by": "mesh"},
        "headersToUpstreamOnAllow": ["content-type"]});
    http.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    json!({"name": name, "envoyExtAuthzHttp": http})
}

#[test]
fn an_authorizer_decides_over_http() {
    let (authorizer, dead) = (Echo::start("authorizer"), free_port());
    let mesh = json!({"extensionProviders": [
        provider("asks", "authorizer.example", 8000, json!({})),
        provider("down", "down.example", 8000, json!({})),
        provider("lenient", "down.example", 8000, json!({"failOpen": true})),
        provider("lost", "nowhere.example", 8000, json!({"failOpen": true})),
    ]});
    let services = service("authorizer.example", 8000, "HTTP", &[(authorizer.port, "v1", "")])
        + &service("down.example", 8000, "HTTP", &[(dead, "v1", "")]);
    let guarded = Guarded::start(&custom("asks"), &mesh, &services);
    guarded.assert_all(&[
        (403, "GET", "/asked/a", &[("x-status", "403")]),
        (200, "GET", "/asked/a", &[("x-status", "200")]),
        (200, "GET", "/free", &[("x-none", "1")]),
    ]);
    let asked = authorizer.paths();
    assert!(asked.iter().all(|path| path == "/check/asked/a"), "only these requests are asked about: {asked:?}");
    // A status of the authorizer goes to the client.
    assert_eq!(guarded.ask("GET", "/asked/a", &[("x-status", "418")]).unwrap().status, 418);

    guarded.plane.write("policies.yaml", &custom("down"));
    guarded.until(403, "/asked/a", &[]);
    guarded.until(200, "/free", &[]);
    guarded.plane.write("policies.yaml", &custom("lenient"));
    guarded.until(200, "/asked/a", &[]);
    // A provider without a service, or without settings, opens nothing.
    for bad in ["lost", "unknown"] {
        guarded.plane.write("policies.yaml", &custom(bad));
        guarded.until(403, "/asked/a", &[]);
        guarded.until(200, "/free", &[]);
        wait_until("the status tells it", || {
            let rows = guarded.plane.debug("/debug/statusz");
            let row = rows.as_array().into_iter().flatten().find(|row| row["kind"] == "AuthorizationPolicy").cloned();
            let row = row.unwrap_or_default();
            if row["status"]["conditions"][0]["reason"] == "ProviderNotUsable" { Ok(()) } else { Err(row.to_string()) }
        });
        guarded.plane.write("policies.yaml", &custom("lenient"));
        guarded.until(200, "/asked/a", &[]);
    }
    guarded.envoy.assert_no_nacks();
}

#[test]
fn two_authorizers_of_one_workload_are_asked_where_the_flag_allows_it() {
    let (first, second) = (Echo::start("first"), Echo::start("second"));
    let mesh = json!({"extensionProviders": [
        provider("first", "first.example", 8000, json!({})),
        provider("second", "second.example", 8000, json!({})),
    ]});
    let services = service("first.example", 8000, "HTTP", &[(first.port, "v1", "")])
        + &service("second.example", 8000, "HTTP", &[(second.port, "v1", "")]);
    let of = |name: &str, path: &str| {
        let rules = json!([{"to": [{"operation": {"paths": [path]}}]}]);
        authorization(name, &json!({"action": "CUSTOM", "provider": {"name": name}, "rules": rules}))
    };
    let policies = of("first", "/first/*") + &of("second", "/second/*");
    let flag = [("PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS", "true")];
    let guarded = Guarded::start_with(&policies, &mesh, &services, &flag);
    let (allowed, denied) = ([("x-status", "200")], [("x-status", "403")]);
    guarded.assert_all(&[
        (403, "GET", "/first/a", &denied),
        (200, "GET", "/first/a", &allowed),
        (403, "GET", "/second/a", &denied),
        (200, "GET", "/second/a", &allowed),
        (200, "GET", "/free", &[("x-none", "1")]),
    ]);
    let only = |echo: &Echo, path: &str| echo.paths().iter().all(|asked| asked == path);
    assert!(only(&first, "/check/first/a") && only(&second, "/check/second/a"), "each is asked about its own requests");
    guarded.envoy.assert_no_nacks();

    // Without the flag nothing is asked and the requests of both are refused.
    let guarded = Guarded::start(&policies, &mesh, &services);
    guarded.assert_all(&[
        (403, "GET", "/first/a", &allowed),
        (403, "GET", "/second/a", &allowed),
        (200, "GET", "/free", &allowed),
    ]);
    wait_until("the statuses tell it", || {
        let rows = guarded.plane.debug("/debug/statusz");
        let told = |row: &&Value| {
            let condition = &row["status"]["conditions"][0];
            condition["reason"] == "RefusedByProxies"
                && condition["message"].as_str().is_some_and(|m| m.contains("several providers"))
        };
        let told = rows.as_array().into_iter().flatten().filter(told).count();
        if told == 2 { Ok(()) } else { Err(rows.to_string()) }
    });
    guarded.envoy.assert_no_nacks();
}

/// The fields of Envoy's request that are read here.
#[derive(Clone, PartialEq, prost::Message)]
struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    attributes: Option<Attributes>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Attributes {
    #[prost(message, optional, tag = "4")]
    request: Option<Asked>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Asked {
    #[prost(message, optional, tag = "2")]
    http: Option<AskedHttp>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AskedHttp {
    #[prost(string, tag = "4")]
    path: String,
    #[prost(string, tag = "11")]
    body: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<RpcStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
}

/// `envoy.service.auth.v3.Authorization`: denies every path that ends with `/no`.
#[derive(Clone)]
struct Authorizer;

impl tonic::server::NamedService for Authorizer {
    const NAME: &'static str = "envoy.service.auth.v3.Authorization";
}

impl tonic::server::UnaryService<CheckRequest> for Authorizer {
    type Response = CheckResponse;
    type Future = std::future::Ready<Result<tonic::Response<CheckResponse>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<CheckRequest>) -> Self::Future {
        let http = request.into_inner().attributes.and_then(|a| a.request).and_then(|r| r.http).unwrap_or_default();
        let code = if http.path.ends_with("/no") { tonic::Code::PermissionDenied } else { tonic::Code::Ok };
        std::future::ready(Ok(tonic::Response::new(CheckResponse { status: Some(RpcStatus { code: code.into() }) })))
    }
}

impl tower::Service<http::Request<tonic::body::Body>> for Authorizer {
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = futures::future::BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let authorizer = self.clone();
        Box::pin(async move {
            let codec = tonic_prost::ProstCodec::default();
            Ok(tonic::server::Grpc::new(codec).unary(authorizer, request).await)
        })
    }
}

/// Serves on a port of its own, in a thread, to the end of the process.
fn authorizer_over_grpc() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
            tonic::transport::Server::builder().add_service(Authorizer).serve_with_incoming(incoming).await.unwrap();
        });
    });
    port
}

#[test]
fn an_authorizer_decides_over_grpc() {
    let grpc = |name: &str, host: &str| {
        json!({"name": name, "envoyExtAuthzGrpc":
        {"service": host, "port": 9000, "timeout": "20s", "statusOnError": "503"}})
    };
    let mesh = json!({"extensionProviders": [grpc("asks", "authorizer.example"), grpc("down", "down.example")]});
    let services = service("authorizer.example", 9000, "GRPC", &[(authorizer_over_grpc(), "v1", "")])
        + &service("down.example", 9000, "GRPC", &[(free_port(), "v1", "")]);
    let guarded = Guarded::start(&custom("asks"), &mesh, &services);
    guarded.assert_all(&[
        (403, "GET", "/asked/no", &[]),
        (200, "GET", "/asked/yes", &[]),
        (200, "GET", "/free/no", &[]),
    ]);
    guarded.plane.write("policies.yaml", &custom("down"));
    guarded.until(503, "/asked/yes", &[]);
    guarded.until(200, "/free/no", &[]);
    guarded.envoy.assert_no_nacks();
}
