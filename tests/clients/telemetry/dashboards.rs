//! A real Prometheus, with the scrape config of the guide, scrapes two stock Envoys; the queries of Istio's dashboards of the
//! mesh, of services and of workloads have their answers, and those of Kiali's graph.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::Value;

use super::metrics::{Pair, mode};
use crate::{
    http::get,
    process::{Process, free_port, scratch, wait_for, wait_until},
    tools,
};

/// The queries of Grafana's `$__rate_interval`.
const RANGE: &str = "[1m]";
/// The label of both sides' reports that tells of mutual TLS.
const MUTUAL: &str = "connection_security_policy=\"mutual_tls\"";
const NOT_MUTUAL: &str = "connection_security_policy!=\"mutual_tls\"";
const OF_SERVICE: &str = "destination_service=\"web.example\"";
const FROM: &str = "source_workload=~\"client-deployment\",source_workload_namespace=~\"shop\"";
const TO: &str = "destination_workload=~\"server-deployment\",destination_workload_namespace=~\"shop\"";
const FINE: &str = "response_code!~\"5.*\"";

type Labels = BTreeMap<String, String>;

struct Prometheus {
    _process: Process,
    port: u16,
}

impl Prometheus {
    /// Scrapes these addresses every second, by the rules of the guide.
    fn start(binary: &Path, targets: &[String]) -> Self {
        let guide = include_str!("../../../src/guide/telemetry.md");
        let job = guide.split("```text\n").find(|block| block.starts_with("scrape_configs:")).unwrap();
        let job = job.split("```").next().unwrap();
        let all = targets.iter().map(|address| format!("{address:?}")).collect::<Vec<_>>().join(", ");
        assert!(job.contains("\"127.0.0.1:15000\""), "{job}");
        let config = format!("global: {{scrape_interval: 1s}}\n{}", job.replace("\"127.0.0.1:15000\"", &all));
        let (folder, port) = (scratch(), free_port());
        fs::write(folder.join("prometheus.yml"), config).unwrap();
        let mut command = Command::new(binary);
        command.arg(format!("--config.file={}", folder.join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let process = Process::start("prometheus", &mut command);
        wait_for("Prometheus is ready", || get(port, "localhost", "/-/ready", &[]).ok().filter(|a| a.status == 200));
        Self { _process: process, port }
    }

    /// The answer to a query now: labels and values.
    fn ask(&self, query: &str) -> Result<Vec<(Labels, f64)>, String> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = get(self.port, "localhost", &format!("/api/v1/query?query={encoded}"), &[]);
        let body = answer.map_err(|error| error.to_string())?.body;
        let answer: Value = serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        assert_eq!(answer["status"], "success", "{query}: {body}");
        let of_series = |series: &Value| {
            let labels = series["metric"].as_object().unwrap().iter();
            let labels = labels.map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_string())).collect();
            (labels, series["value"][1].as_str().unwrap_or_default().parse().unwrap())
        };
        Ok(answer["data"]["result"].as_array().unwrap().iter().map(of_series).collect())
    }

    /// Waits until a query is answered with series of exactly these labels, each with a value for which this holds.
    fn until(&self, query: &str, series: &[&[(&str, &str)]], holds: impl Fn(f64) -> bool) {
        let labels = |of: &&[(&str, &str)]| of.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
        let mut wanted: Vec<Labels> = series.iter().map(labels).collect();
        wanted.sort();
        wait_until(query, || {
            // Requests before the first scrape have series that never change.
            let found: Vec<_> = self.ask(query)?.into_iter().filter(|(_, value)| *value != 0.0).collect();
            let mut labels: Vec<Labels> = found.iter().map(|(labels, _)| labels.clone()).collect();
            labels.sort();
            if labels == wanted && found.iter().all(|(_, value)| holds(*value)) {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        });
    }
}

/// Requests and connections without end: half of the requests are answered with 200, one in four with 404 and with 500.
struct Traffic(Arc<AtomicBool>);

impl Traffic {
    fn start(pair: &Pair) -> Self {
        let (ended, egress, tcp) = (Arc::new(AtomicBool::new(false)), pair.egress, pair.tcp);
        let seen = ended.clone();
        thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                for path in ["/", "/status/404", "/", "/status/500"] {
                    let _ = get(egress, "web.example", path, &[]);
                }
                if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", tcp)) {
                    let _ = stream.write_all(b"12345678");
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                    let _ = stream.read_to_end(&mut Vec::new());
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        Self(ended)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn rate(metric: &str, labels: &[&str]) -> String {
    format!("rate({metric}{{{}}}{RANGE})", labels.join(","))
}

fn irate(metric: &str, labels: &[&str]) -> String {
    format!("i{}", rate(metric, labels))
}

fn quantile(quantile: &str, metric: &str, labels: &[&str], by: &str) -> String {
    let by = if by.is_empty() { "le".to_string() } else { format!("{by}, le") };
    format!("histogram_quantile({quantile}, sum({}) by ({by}))", irate(&format!("{metric}_bucket"), labels))
}

/// A duration in seconds, from either unit that Istio has had.
fn duration(of: &str, labels: &[&str], by: &str) -> String {
    let [millis, seconds] =
        ["milliseconds", "seconds"].map(|unit| quantile(of, &format!("istio_request_duration_{unit}"), labels, by));
    format!("({millis} / 1000) or {seconds}")
}

const POSITIVE: fn(f64) -> bool = |value| value > 0.0 && value.is_finite();
/// Three of four requests are answered with less than 500.
const MOST: fn(f64) -> bool = |value| (0.55..0.95).contains(&value);

/// The panels of the mesh: reports of clients.
fn mesh(prometheus: &Prometheus) {
    let reports = "reporter=~\"source|waypoint\"";
    let requests = |more: &[&str]| rate("istio_requests_total", &[&[reports], more].concat());
    prometheus.until(&format!("round(sum ({}), 0.01)", requests(&[])), &[&[]], POSITIVE);
    for class in ["4..", "5.."] {
        let of_class = format!("response_code=~\"{class}\"");
        let all = format!("round(sum ({}), 0.01) or vector(0)", requests(&[&of_class]));
        prometheus.until(&all, &[&[]], POSITIVE);
        let share = format!("sum({}) / sum({})", requests(&[&of_class]), requests(&[]));
        prometheus.until(&share, &[&[]], |value| (0.1..0.45).contains(&value));
    }
    let success = |by: &str| {
        let fine = requests(&["response_code!~\"5..\""]);
        format!("sum{by} ({fine}) / sum{by} ({})", requests(&[]))
    };
    prometheus.until(&success(""), &[&[]], MOST);
    let workload = [("destination_workload", "server-deployment"), ("destination_workload_namespace", "shop")];
    let joined = [&workload[..], &[("destination_workload_var", "server-deployment.shop")]].concat();
    let join = |inner: &str| {
        let labels = ["destination_workload_var", ".", "destination_workload", "destination_workload_namespace"];
        format!("label_join({inner}, {})", labels.map(|label| format!("\"{label}\"")).join(", "))
    };
    let by = "destination_workload,destination_workload_namespace";
    prometheus.until(&join(&success(&format!(" by ({by})"))), &[&joined], MOST);
    for of in ["0.5", "0.9", "0.99"] {
        let buckets = rate("istio_request_duration_milliseconds_bucket", &[reports]);
        let query = join(&format!("histogram_quantile({of}, sum by (le,{by}) ({buckets}))"));
        prometheus.until(&query, &[&joined], POSITIVE);
    }
    let of_service = [&joined[..], &[("destination_service", "web.example")]].concat();
    for metric in ["istio_requests_total", "istio_tcp_received_bytes_total", "istio_tcp_sent_bytes_total"] {
        let query = join(&format!("sum by ({by},destination_service) ({})", rate(metric, &[reports])));
        prometheus.until(&query, &[&of_service], POSITIVE);
    }
}

/// The panels about requests and bytes that both dashboards have: of reports with these labels, by others. `answered` is the
/// state of mutual TLS that the reports tell.
fn requests(prometheus: &Prometheus, labels: &[&str], by: &[(&str, &str)], answered: &str) {
    let names = by.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let other = if answered == MUTUAL { NOT_MUTUAL } else { MUTUAL };
    let codes = ["200", "404", "500"].map(|code| [by, &[("response_code", code)]].concat());
    let codes: Vec<&[(&str, &str)]> = codes.iter().map(Vec::as_slice).collect();
    for (policy, is_answered) in [(answered, true), (other, false)] {
        let labels = [&[policy], labels].concat();
        let fine = [&labels[..], &[FINE]].concat();
        let all = irate("istio_requests_total", &labels);
        let mut queries =
            vec![format!("sum({}) by ({names}) / sum({all}) by ({names})", irate("istio_requests_total", &fine))];
        for of in ["0.50", "0.90", "0.95", "0.99"] {
            queries.push(duration(of, &labels, &names));
            for metric in ["istio_request_bytes", "istio_response_bytes"] {
                queries.push(quantile(of, metric, &labels, &names));
            }
        }
        let by_code = format!("round(sum({all}) by ({names}, response_code), 0.001)");
        if is_answered {
            prometheus.until(&by_code, &codes, POSITIVE);
            prometheus.until(&queries[0], &[by], |value| (0.0..=1.0).contains(&value));
            queries[1..].iter().for_each(|query| prometheus.until(query, &[by], POSITIVE));
        } else {
            queries
                .iter()
                .chain([&by_code])
                .for_each(|query| assert_eq!(prometheus.ask(query).unwrap(), [], "{query}"));
        }
    }
}

/// The panels about connections: of reports with these labels, by others.
fn connections(prometheus: &Prometheus, labels: &[&str], by: &[(&str, &str)]) {
    let names = by.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    for metric in ["istio_tcp_received_bytes_total", "istio_tcp_sent_bytes_total"] {
        let query = format!("round(sum({}) by ({names}), 0.001)", irate(metric, labels));
        prometheus.until(&query, &[by], POSITIVE);
    }
}

/// The graph of Kiali: of both sides, requests by code and flags, connections by flags, and their security as servers see it.
fn kiali(prometheus: &Prometheus) {
    let ends = [
        ("source_cluster", "Kubernetes"),
        ("source_workload_namespace", "shop"),
        ("source_workload", "client-deployment"),
        ("source_canonical_service", "client"),
        ("source_canonical_revision", "v1"),
        ("destination_cluster", "Kubernetes"),
        ("destination_service_namespace", "shop"),
        ("destination_service_name", "web.example"),
        ("destination_workload_namespace", "shop"),
        ("destination_workload", "server-deployment"),
        ("destination_canonical_service", "server"),
        ("destination_canonical_revision", "v2"),
    ];
    let service = ("destination_service", "web.example");
    let flags = ("response_flags", "-");
    let by = |metric: &str, labels: &[&str], wanted: &[&[(&str, &str)]]| {
        let mut names: Vec<&str> = wanted[0].iter().map(|(name, _)| *name).collect();
        // No request of this traffic is gRPC.
        names.push("grpc_response_status");
        let query = format!("sum({}) by ({}) > 0", rate(metric, labels), names.join(","));
        prometheus.until(&query, wanted, POSITIVE);
    };
    for reporter in ["reporter=\"source\"", "reporter=\"destination\""] {
        let labels = [reporter, "source_workload_namespace=\"shop\""];
        let of_code =
            |code| [&ends[..], &[service, ("request_protocol", "http"), ("response_code", code), flags]].concat();
        let wanted = ["200", "404", "500"].map(of_code);
        by("istio_requests_total", &labels, &wanted.each_ref().map(Vec::as_slice));
    }
    for metric in ["istio_tcp_sent_bytes_total", "istio_tcp_received_bytes_total"] {
        let labels = ["reporter=\"source\"", "source_workload_namespace=\"shop\""];
        by(metric, &labels, &[&[&ends[..], &[service, flags]].concat()]);
    }
    let proven = [
        ("source_principal", "spiffe://cluster.local/ns/shop/sa/client"),
        ("destination_principal", "spiffe://cluster.local/ns/shop/sa/server"),
        ("connection_security_policy", "mutual_tls"),
    ];
    let labels = ["reporter=\"destination\"", "destination_service_namespace=\"shop\""];
    by("istio_requests_total", &labels, &[&[&ends[..], &proven].concat()]);
    for metric in ["istio_request_duration_milliseconds_bucket", "istio_response_bytes_bucket"] {
        let query = format!("histogram_quantile(0.95, sum({}) by (le,destination_workload))", rate(metric, &labels));
        prometheus.until(&query, &[&[("destination_workload", "server-deployment")]], POSITIVE);
    }
}

#[test]
fn istios_dashboards_are_answered_by_prometheus() {
    let Some(binary) = tools::prometheus() else { return };
    let pair = Pair::start(&mode("STRICT"));
    let traffic = Traffic::start(&pair);
    let prometheus = Prometheus::start(&binary, &[pair.server.admin_address(), pair.client.admin_address()]);
    mesh(&prometheus);
    let (source, destination) = ("reporter=~\"source\"", "reporter=~\"destination\"");
    let client = [("source_workload", "client-deployment"), ("source_workload_namespace", "shop")];
    let server = [("destination_workload", "server-deployment"), ("destination_workload_namespace", "shop")];
    let service = [("destination_service", "web.example")];
    for reports in [source, destination] {
        // Of a service, and of a workload that is asked.
        for asked in [OF_SERVICE, TO] {
            let labels = [reports, asked];
            let all = irate("istio_requests_total", &labels);
            prometheus.until(&format!("round(sum({all}), 0.001)"), &[&[]], POSITIVE);
            let fine = irate("istio_requests_total", &[reports, asked, FINE]);
            prometheus.until(&format!("sum({fine}) / (sum({all}) or on () vector(1))"), &[&[]], POSITIVE);
            for of in ["0.50", "0.90", "0.99"] {
                prometheus.until(&duration(of, &labels, ""), &[&[]], POSITIVE);
            }
            for metric in ["istio_tcp_received_bytes_total", "istio_tcp_sent_bytes_total"] {
                prometheus.until(&format!("sum({})", irate(metric, &labels)), &[&[]], POSITIVE);
            }
        }
    }
    // By clients, of the service and of the workload.
    for asked in [OF_SERVICE, TO] {
        requests(&prometheus, &[source, asked, FROM], &client, NOT_MUTUAL);
        requests(&prometheus, &[destination, asked, FROM], &client, MUTUAL);
        connections(&prometheus, &[source, NOT_MUTUAL, asked, FROM], &client);
    }
    // By workloads of the service.
    requests(&prometheus, &["reporter=\"destination\"", OF_SERVICE, TO], &server, MUTUAL);
    connections(&prometheus, &["reporter=\"destination\"", MUTUAL, OF_SERVICE, TO], &server);
    // By services that a workload asks.
    requests(&prometheus, &["reporter=\"source\"", FROM, OF_SERVICE], &service, NOT_MUTUAL);
    connections(&prometheus, &["reporter=\"source\"", NOT_MUTUAL, FROM, OF_SERVICE], &service);
    let proven = ["destination_principal=~\"spiffe.*\"", "reporter=\"source\"", FROM, OF_SERVICE];
    let by_principal = irate("istio_requests_total", &proven);
    let codes = ["200", "404", "500"].map(|code| [&service[..], &[("response_code", code)]].concat());
    let codes: Vec<&[(&str, &str)]> = codes.iter().map(Vec::as_slice).collect();
    let by_principal = format!("round(sum({by_principal}) by (destination_service, response_code), 0.001)");
    prometheus.until(&by_principal, &codes, POSITIVE);
    kiali(&prometheus);
    drop(traffic);
    pair.assert_no_nacks();
}
