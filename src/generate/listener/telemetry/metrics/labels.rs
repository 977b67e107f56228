//! The labels of Istio's metrics as formats that Envoy evaluates. Each is evaluated once for each metric, so nearly all are
//! plain look-ups; CEL costs several microseconds.

use crate::{
    generate::{check, proxy_config::ListenerClass},
    push::OwnPeer,
};

/// A format of a CEL expression.
///
/// # Errors
/// The expression has a character that would end the format.
pub(super) fn formatted(expression: &str) -> Result<String, String> {
    if expression.contains('%') {
        return Err("an expression of a tag may not have the character %".to_string());
    }
    let format = format!("%CEL({expression})%");
    check::format(&format).map(|()| format)
}

/// Labels of requests.
pub(super) fn of_requests(own: &OwnPeer, class: ListenerClass) -> Vec<(&'static str, String)> {
    let is_server = class == ListenerClass::SidecarInbound;
    let grpc = "'content-type' in request.headers && request.headers['content-type'].startsWith('application/grpc')";
    let mut all =
        common(own, is_server.then(Party::client_of_request), "%CEL(connection.mtls ? 'mutual_tls' : 'none')%");
    all.extend([
        ("request_protocol", format!("%CEL({grpc} ? 'grpc' : 'http')%")),
        ("response_code", "%RESPONSE_CODE%".to_string()),
        ("grpc_response_status", "%GRPC_STATUS_NUMBER%".to_string()),
    ]);
    all
}

/// Labels of TCP connections.
pub(super) fn of_connections(own: &OwnPeer, class: ListenerClass) -> Vec<(&'static str, String)> {
    let is_server = class == ListenerClass::SidecarInbound;
    let policy = "%CEL(connection.mtls ? 'mutual_tls' : 'none')%";
    let mut all = common(own, is_server.then(Party::client_of_connection), policy);
    all.push(("request_protocol", "tcp".to_string()));
    all
}

/// Labels of both; `client` is given by a server.
fn common(own: &OwnPeer, client: Option<Party>, policy: &str) -> Vec<(&'static str, String)> {
    let is_server = client.is_some();
    let own = Party::own(own);
    let (source, destination) = match client {
        Some(client) => (client, own),
        None => (own, Party::endpoint()),
    };
    let (source_principal, destination_principal, policy) = if is_server {
        ("%DOWNSTREAM_PEER_URI_SAN%", "%DOWNSTREAM_LOCAL_URI_SAN%", policy)
    } else {
        ("%UPSTREAM_LOCAL_URI_SAN%", "%UPSTREAM_PEER_URI_SAN%", "unknown")
    };
    let service = |key: &str| format!("%CLUSTER_METADATA({}:{key})%", OwnPeer::METADATA);
    vec![
        ("reporter", if is_server { "destination" } else { "source" }.to_string()),
        ("source_workload", source.workload),
        ("source_workload_namespace", source.namespace),
        ("source_principal", source_principal.to_string()),
        ("source_app", source.app),
        ("source_version", source.version),
        ("source_canonical_service", source.canonical_service),
        ("source_canonical_revision", source.canonical_revision),
        ("source_cluster", source.cluster),
        ("destination_workload", destination.workload),
        ("destination_workload_namespace", destination.namespace),
        ("destination_principal", destination_principal.to_string()),
        ("destination_app", destination.app),
        ("destination_version", destination.version),
        ("destination_canonical_service", destination.canonical_service),
        ("destination_canonical_revision", destination.canonical_revision),
        ("destination_cluster", destination.cluster),
        ("destination_service", service("service")),
        ("destination_service_name", service("service_name")),
        ("destination_service_namespace", service("service_namespace")),
        ("response_flags", "%RESPONSE_FLAGS%".to_string()),
        ("connection_security_policy", policy.to_string()),
    ]
}

/// The formats that tell about one end of a connection.
struct Party {
    workload: String,
    namespace: String,
    app: String,
    version: String,
    canonical_service: String,
    canonical_revision: String,
    cluster: String,
}

impl Party {
    /// The fields in the order of [`OwnPeer::FIELDS`].
    fn of(field: impl Fn(&'static str) -> String) -> Self {
        let [workload, namespace, app, version, canonical_service, canonical_revision, cluster] =
            OwnPeer::FIELDS.map(field);
        Self { workload, namespace, app, version, canonical_service, canonical_revision, cluster }
    }

    fn own(own: &OwnPeer) -> Self {
        Self::of(|field| own.value(field).to_string())
    }

    /// The endpoint that a request goes to, by the metadata that this control plane gives it.
    fn endpoint() -> Self {
        Self::of(|field| format!("%UPSTREAM_METADATA({}:{field})%", OwnPeer::METADATA))
    }

    /// The client of a request, by the metadata that its header became.
    fn client_of_request() -> Self {
        Self::of(|field| format!("%DYNAMIC_METADATA({}:{field})%", OwnPeer::METADATA))
    }

    /// The client of a connection, by its certificate.
    fn client_of_connection() -> Self {
        let san = "connection.uri_san_peer_certificate";
        let account = "^spiffe://[^/]*/ns/([^/]+)/.*";
        let known = format!("has({san}) && {san}.matches('{account}')");
        Self::of(|field| match field {
            "namespace" => format!("%CEL({known} ? re.extract({san}, '{account}', '\\\\1') : 'unknown')%"),
            _ => "unknown".to_string(),
        })
    }
}
