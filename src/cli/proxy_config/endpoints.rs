//! Endpoints as rows: those that are configured, or those of Envoy's page `/clusters`, with its own opinion of each.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};

use super::{
    super::{dump::of_either, table},
    clusters::Name,
    objects::NONE,
};

/// States of health that endpoints have.
const STATES: [&str; 6] = ["UNKNOWN", "HEALTHY", "UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED"];

/// The endpoints that are shown: those that fit all of these.
#[derive(Debug, Clone, Default, Args)]
pub struct EndpointFilter {
    /// Name of the cluster.
    #[arg(long, env = "PILOTHOUSE_CLUSTER", value_name = "NAME")]
    pub cluster: Option<String>,
    /// Address of the endpoint, without its port.
    #[arg(long, env = "PILOTHOUSE_ADDRESS", value_name = "ADDRESS")]
    pub address: Option<String>,
    /// Port of the endpoint.
    // Kubernetes sets PILOTHOUSE_PORT in Pods beside a Service of that name.
    #[arg(long, env = "PILOTHOUSE_FILTER_PORT", value_name = "PORT")]
    pub port: Option<u16>,
    /// State of health.
    #[arg(long, env = "PILOTHOUSE_STATUS", value_name = "STATUS", ignore_case = true, value_parser = STATES)]
    pub status: Option<String>,
}

/// An endpoint of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    address: String,
    port: u64,
    status: String,
    /// `OK` or `FAILED`; empty where no Envoy was asked.
    outlier_check: String,
    cluster: String,
    /// Name and namespace of the workload.
    workload: String,
}

impl EndpointFilter {
    /// The endpoints that fit, by address, port and cluster.
    pub(super) fn kept(&self, mut rows: Vec<Row>) -> Vec<Row> {
        let is = |wanted: &Option<String>, text: &str| wanted.as_ref().is_none_or(|w| w.eq_ignore_ascii_case(text));
        rows.retain(|row| {
            is(&self.cluster, &row.cluster)
                && is(&self.address, &row.address)
                && is(&self.status, &row.status)
                && self.port.is_none_or(|port| u64::from(port) == row.port)
        });
        rows.sort_by(|a, b| {
            (&a.address, a.port, Name::of(&a.cluster)).cmp(&(&b.address, b.port, Name::of(&b.cluster)))
        });
        rows
    }
}

impl Row {
    fn endpoint(&self) -> String {
        match self.port {
            0 => self.address.clone(),
            port if self.address.contains(':') => format!("[{}]:{port}", self.address),
            port => format!("{}:{port}", self.address),
        }
    }

    /// Name of the cluster.
    pub(super) fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The row as a JSON object.
    pub(super) fn value(&self) -> Value {
        json!({
            "endpoint": self.endpoint(), "status": self.status, "outlierCheck": self.outlier_check,
            "cluster": self.cluster, "workload": self.workload,
        })
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Address and port of Envoy's message, in either spelling.
fn address(of: &Value) -> (String, u64) {
    if let Some(socket) = of_either(of, ["socketAddress", "socket_address"]) {
        let port = of_either(socket, ["portValue", "port_value"]).and_then(Value::as_u64);
        return (socket["address"].as_str().unwrap_or_default().to_string(), port.unwrap_or_default());
    }
    if let Some(path) = of["pipe"]["path"].as_str() {
        return (format!("unix://{path}"), 0);
    }
    let internal = of_either(of, ["envoyInternalAddress", "envoy_internal_address"]);
    let text = |keys| internal.and_then(|i| of_either(i, keys)).and_then(Value::as_str).unwrap_or_default();
    match text(["serverListenerName", "server_listener_name"]) {
        "" => ("unknown".to_string(), 0),
        listener => (format!("envoy://{listener}/{}", text(["endpointId", "endpoint_id"])), 0),
    }
}

/// The workload of the metadata `istio.workload`: `NAME;NAMESPACE;…`.
fn workload(metadata: &Value) -> String {
    let text = metadata["filterMetadata"]["istio"]["workload"].as_str().unwrap_or_default();
    let mut parts = text.split(';');
    match (parts.next().unwrap_or_default(), parts.next().unwrap_or_default()) {
        ("", _) => String::new(),
        (name, "") => name.to_string(),
        (name, namespace) => format!("{name}.{namespace}"),
    }
}

/// The endpoints that are configured.
pub(super) fn of_dump(assignments: &[Value]) -> Vec<Row> {
    let mut rows = Vec::new();
    for assignment in assignments {
        for endpoint in list(assignment.get("endpoints")).iter().flat_map(|of| list(of.get("lbEndpoints"))) {
            let (address, port) = address(&endpoint["endpoint"]["address"]);
            rows.push(Row {
                address,
                port,
                status: endpoint["healthStatus"].as_str().unwrap_or("UNKNOWN").to_string(),
                outlier_check: String::new(),
                cluster: assignment["clusterName"].as_str().unwrap_or_default().to_string(),
                workload: workload(&endpoint["metadata"]),
            });
        }
    }
    rows
}

/// Whether a document is Envoy's page `/clusters?format=json`.
pub(super) fn is_page_of_hosts(document: &Value) -> bool {
    of_either(document, ["clusterStatuses", "cluster_statuses"]).is_some_and(Value::is_array)
}

/// The endpoints of that page; their workloads are those of the configured ones.
pub(super) fn of_hosts(page: &Value, assignments: &[Value]) -> Vec<Row> {
    let workloads: BTreeMap<(String, String, u64), String> =
        of_dump(assignments).into_iter().map(|row| ((row.cluster, row.address, row.port), row.workload)).collect();
    let mut rows = Vec::new();
    for cluster in list(of_either(page, ["clusterStatuses", "cluster_statuses"])) {
        let name = cluster["name"].as_str().unwrap_or_default().to_string();
        for host in list(of_either(cluster, ["hostStatuses", "host_statuses"])) {
            let (address, port) = address(&host["address"]);
            let health = of_either(host, ["healthStatus", "health_status"]).unwrap_or(&Value::Null);
            let status = of_either(health, ["edsHealthStatus", "eds_health_status"]).and_then(Value::as_str);
            let failed = of_either(health, ["failedOutlierCheck", "failed_outlier_check"]).and_then(Value::as_bool);
            let key = (name.clone(), address, port);
            let workload = workloads.get(&key).cloned().unwrap_or_default();
            rows.push(Row {
                status: status.unwrap_or("UNKNOWN").to_string(),
                outlier_check: if failed == Some(true) { "FAILED" } else { "OK" }.to_string(),
                cluster: key.0,
                address: key.1,
                port,
                workload,
            });
        }
    }
    rows
}

/// istioctl's columns, and the workload.
pub(super) fn table(rows: &[Row]) -> String {
    let cell = |text: String| if text.is_empty() { NONE.to_string() } else { text };
    let shown = |row: &Row| {
        let Row { status, outlier_check, cluster, workload, .. } = row.clone();
        [row.endpoint(), status, outlier_check, cluster, workload].map(cell)
    };
    let titles = ["ENDPOINT", "STATUS", "OUTLIER CHECK", "CLUSTER", "WORKLOAD"].map(String::from);
    let rows: Vec<[String; 5]> = std::iter::once(titles).chain(rows.iter().map(shown)).collect();
    table::aligned(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignments() -> Vec<Value> {
        let of = |ip: &str, port: u16| json!({"address": {"socketAddress": {"address": ip, "portValue": port}}});
        vec![json!({"clusterName": "outbound|80||web.example", "endpoints": [{"lbEndpoints": [
            {"endpoint": of("10.0.0.2", 8080), "healthStatus": "HEALTHY",
             "metadata": {"filterMetadata": {"istio": {"workload": "web-v1;shop;web;v1;Kubernetes"}}}},
            {"endpoint": of("10.0.0.1", 8080), "healthStatus": "DRAINING"},
            {"endpoint": {"address": {"pipe": {"path": "/run/x"}}}},
            {"endpoint": of("::1", 1)}]}]})]
    }

    #[test]
    fn configured_endpoints_and_those_of_an_envoy() {
        let text = table(&EndpointFilter::default().kept(of_dump(&assignments())));
        let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["10.0.0.1:8080", "DRAINING", "-", "outbound|80||web.example", "-"]);
        assert_eq!(rows[1], ["10.0.0.2:8080", "HEALTHY", "-", "outbound|80||web.example", "web-v1.shop"]);
        assert_eq!((rows[2][0], rows[3][0]), ("[::1]:1", "unix:///run/x"));

        let page = json!({"cluster_statuses": [{"name": "outbound|80||web.example", "host_statuses": [
            {"address": {"socket_address": {"address": "10.0.0.2", "port_value": 8080}},
             "health_status": {"eds_health_status": "HEALTHY", "failed_outlier_check": true}}]}]});
        assert!(is_page_of_hosts(&page) && !is_page_of_hosts(&json!({"configs": []})));
        let text = table(&of_hosts(&page, &assignments()));
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["10.0.0.2:8080", "HEALTHY", "FAILED", "outbound|80||web.example", "web-v1.shop"]);
    }

    #[test]
    fn filters_are_joined() {
        let kept = |filter: EndpointFilter| filter.kept(of_dump(&assignments())).len();
        let text = |text: &str| Some(text.to_string());
        assert_eq!(kept(EndpointFilter { port: Some(8080), ..Default::default() }), 2);
        assert_eq!(kept(EndpointFilter { status: text("healthy"), ..Default::default() }), 1);
        assert_eq!(kept(EndpointFilter { address: text("10.0.0.1"), ..Default::default() }), 1);
        assert_eq!(kept(EndpointFilter { cluster: text("outbound|80||web"), ..Default::default() }), 0);
    }
}
