//! The metrics recorder and its output in Prometheus' text format.

use std::{fs, time::Instant};

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// The recorder cannot be installed.
#[derive(Debug, thiserror::Error)]
#[error("metrics recorder: {0}")]
pub struct SetupError(#[from] BuildError);

/// Buckets of push and send times, in seconds (Istio's).
const PUSH_SECONDS: &[f64] = &[0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];
/// Buckets of queue and convergence times, in seconds (Istio's).
const QUEUE_SECONDS: &[f64] = &[0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0];
/// Buckets of push context build times, in seconds (Istio's).
const CONTEXT_SECONDS: &[f64] = &[0.01, 0.1, 0.5, 1.0, 3.0, 5.0];
/// Buckets of config sizes, in bytes (Istio's).
const CONFIG_BYTES: &[f64] = &[1.0, 10_000.0, 1_000_000.0, 4_000_000.0, 10_000_000.0, 40_000_000.0];

/// Buckets of waits and runs of work in queues, in seconds (Istio's).
const WORK_SECONDS: &[f64] = &[0.01, 0.1, 0.2, 0.5, 1.0, 3.0, 5.0];

/// Locked during installation, so that of two concurrent calls the second returns the first one's recorder.
static HANDLE: Mutex<Option<PrometheusHandle>> = Mutex::new(None);

/// The metrics recorder of this process.
#[derive(Debug, Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
    started: Instant,
}

impl Metrics {
    /// Installs the recorder; later calls return the first one.
    ///
    /// # Errors
    /// [`SetupError`] when another recorder is installed.
    pub fn install() -> Result<Self, SetupError> {
        let handle = {
            let mut installed = HANDLE.lock();
            match &*installed {
                Some(handle) => handle.clone(),
                None => installed.insert(builder()?.install_recorder()?).clone(),
            }
        };
        describe();
        gauge!("istio_build", "component" => "pilot", "tag" => env!("CARGO_PKG_VERSION")).set(1.0);
        gauge!("pilot_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        // Present from the start, so that an alert can distinguish zero from unknown.
        counter!("pilothouse_log_lines_dropped").increment(0);
        counter!("pilothouse_log_lines_suppressed").increment(0);
        for name in [
            "pilot_total_xds_internal_errors",
            "pilot_xds_write_timeout",
            "pilothouse_last_good_write_failures",
            "pilothouse_xds_authentication_failures",
            "pilothouse_xds_connections_refused",
            "pilothouse_xds_tls_handshake_failures",
            "pilothouse_xds_unread_cut_off",
        ] {
            counter!(name).increment(0);
        }
        for kind in ["cds", "eds", "lds", "rds", "sds"] {
            counter!("pilot_total_xds_rejects", "type" => kind).increment(0);
        }
        counter!("xds_cache_evictions", "type" => "clear").increment(0);
        for event in ["add", "update", "delete"] {
            counter!("remote_cluster_secret_events_total", "event" => event).increment(0);
        }
        Ok(Self { handle, started: Instant::now() })
    }

    /// All metrics in Prometheus' text format.
    #[must_use]
    pub fn render(&self) -> String {
        gauge!("istiod_uptime_seconds").set(self.started.elapsed().as_secs_f64());
        if let Some(process) = Process::read() {
            gauge!("process_cpu_seconds_total").set(process.cpu_seconds);
            gauge!("process_resident_memory_bytes").set(process.resident_bytes);
            gauge!("process_threads").set(process.threads);
            gauge!("process_open_fds").set(process.open_files);
        }
        if let Ok(runtime) = Handle::try_current() {
            gauge!("pilothouse_tasks").set(runtime.metrics().num_alive_tasks() as f64);
        }
        self.handle.run_upkeep();
        self.handle.render()
    }
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for (names, buckets) in [
        (&["pilot_xds_send_time", "pilot_xds_push_time"][..], PUSH_SECONDS),
        (&["pilot_proxy_queue_time", "pilot_proxy_convergence_time", "pilot_debounce_time"][..], QUEUE_SECONDS),
        (&["pilot_pushcontext_init_seconds"][..], CONTEXT_SECONDS),
        (&["pilot_xds_config_size_bytes"][..], CONFIG_BYTES),
        (&["pilot_worker_queue_latency", "pilot_worker_queue_duration"][..], WORK_SECONDS),
    ] {
        for name in names {
            builder = builder.set_buckets_for_metric(Matcher::Full((*name).to_string()), buckets)?;
        }
    }
    Ok(builder)
}

fn describe() {
    describe_gauge!("pilot_xds", "Connected xDS clients.");
    describe_counter!("pilothouse_xds_connections_refused", "Connections refused at the limit of connections.");
    describe_counter!(
        "pilothouse_xds_unread_cut_off",
        "Connections that were closed since too many bytes waited for clients to read (--max-unread-bytes)."
    );
    describe_counter!("pilot_xds_pushes", "Responses sent, by type.");
    describe_counter!("pilot_total_xds_rejects", "Responses that a client refused, by type.");
    describe_counter!("pilot_xds_expired_nonce", "Requests with a nonce that is not the last one sent, by type.");
    describe_counter!("pilot_total_xds_internal_errors", "Faults inside the xDS server.");
    describe_counter!("pilot_load_reports", "Reports of a cluster's load that clients sent (LRS).");
    describe_counter!("pilot_load_reported_requests", "Requests that clients reported (LRS), by outcome.");
    describe_counter!("pilot_push_triggers", "Pushes, by trigger.");
    describe_counter!("pilot_inbound_updates", "Updates received, by kind: config, eds, svc, svcdelete.");
    describe_counter!("pilot_k8s_cfg_events", "Changes of configuration objects, by kind and event.");
    describe_counter!("pilot_k8s_reg_events", "Changes of registry objects, by kind and event.");
    describe_counter!(
        "pilot_total_rejected_configs",
        "Objects that were refused, by kind and name; \"other\" beyond 256 names."
    );
    describe_gauge!("pilot_services", "Services in the registry.");
    describe_histogram!("pilot_xds_push_time", "Seconds to generate and hand over one type.");
    describe_histogram!("pilot_xds_send_time", "Seconds to send one response.");
    describe_histogram!("pilot_proxy_queue_time", "Seconds that a push waited for a connection.");
    describe_histogram!("pilot_proxy_convergence_time", "Seconds from a change to its delivery.");
    describe_histogram!("pilot_debounce_time", "Seconds from the first change to the start of its push.");
    describe_histogram!("pilot_pushcontext_init_seconds", "Seconds to build a push context.");
    describe_histogram!("pilot_xds_config_size_bytes", "Bytes of one response.");
    describe_gauge!("pilothouse_tasks", "Tasks of the runtime: connections, streams, sources.");
    describe_counter!("pilothouse_log_lines_dropped", "Log lines dropped while standard error was blocked.");
    describe_counter!(
        "pilothouse_log_lines_suppressed",
        "Log lines suppressed as repeats; a line reports their number."
    );
    describe_counter!("pilothouse_trace_spans_exported", "Spans that the collector of traces took.");
    describe_counter!("pilothouse_trace_spans_dropped", "Spans that the collector of traces did not take in time.");
    describe_counter!(
        "pilot_jwks_resolver_network_fetch_success_total",
        "Key sets fetched for RequestAuthentications."
    );
    describe_counter!("pilot_jwks_resolver_network_fetch_fail_total", "Key sets that could not be fetched.");
    describe_counter!("xds_cache_evictions", "Total number of xds cache evictions.");
    describe_counter!("remote_cluster_secret_events_total", "Number of remote cluster secret events.");
    describe_counter!("controller_sync_errors_total", "Failures to list or watch a kind, by cluster.");
    describe_counter!(
        "pilothouse_xds_bytes_saved",
        "Bytes of resources that a push did not send, since the client holds them, by type."
    );
    describe_histogram!("pilot_worker_queue_latency", "Seconds that a message waited for its actor.");
    describe_histogram!("pilot_worker_queue_duration", "Seconds that an actor worked at a message.");
    describe_counter!("galley_validation_passed", "Objects that validation took, by kind.");
    describe_counter!("galley_validation_failed", "Objects that validation refused, by kind.");
}

/// Statistics of the process from the kernel.
struct Process {
    cpu_seconds: f64,
    resident_bytes: f64,
    threads: f64,
    open_files: f64,
}

impl Process {
    fn read() -> Option<Self> {
        /// Clock ticks per second in `/proc/self/stat` on Linux.
        const TICKS: f64 = 100.0;
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |i: usize| fields.get(i)?.parse::<f64>().ok();
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let kilobytes: f64 =
            status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?.trim().trim_end_matches(" kB").parse().ok()?;
        let open_files = fs::read_dir("/proc/self/fd").ok()?.count();
        Some(Self {
            cpu_seconds: (number(11)? + number(12)?) / TICKS,
            resident_bytes: kilobytes * 1024.0,
            threads: number(17)?,
            open_files: open_files as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_printed_as_istio_spells_them() {
        let metrics = Metrics::install().unwrap();
        metrics::counter!("pilot_xds_pushes", "type" => "cds").increment(3);
        let text = metrics.render();
        assert!(text.contains("pilot_xds_pushes{type=\"cds\"} 3"), "{text}");
        assert!(text.contains("istio_build{component=\"pilot\""), "{text}");
        assert!(text.contains("process_resident_memory_bytes "), "{text}");
    }
}
