//! The export of traces to an OpenTelemetry collector.
//!
//! Invariants: [`TraceQueue::offer`] never waits; the spans that wait are bounded, further ones are dropped and counted; a
//! collector that hangs or refuses costs its spans and a log line every ten seconds, nothing else.

use std::{
    env, fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use metrics::counter;
use opentelemetry::{
    Context, Key, KeyValue,
    trace::{Span as _, Status, TraceContextExt, Tracer, TracerProvider},
};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::{
    Protocol as OtlpProtocol, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
    tonic_types::transport::{Certificate, ClientTlsConfig},
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor},
};
use parking_lot::Mutex;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio_util::sync::CancellationToken;

use super::{
    span_tree::SpanTree,
    throttle::LogThrottle,
    trace_settings::{Protocol, TraceSettings},
};

/// Traces that may wait, whatever their size.
const TRACES: usize = 1024;

/// The place that finished traces are put into.
#[derive(Debug, Clone)]
pub struct TraceQueue {
    sender: mpsc::Sender<SpanTree>,
    losses: Arc<Losses>,
    waiting: Arc<AtomicUsize>,
    most_waiting: usize,
}

/// The count of spans that no collector got, and the log lines about them.
#[derive(Debug, Default)]
struct Losses {
    lines: LogThrottle,
}

/// The task that exports what is in the queue.
#[derive(Debug)]
pub struct TraceExport {
    receiver: mpsc::Receiver<SpanTree>,
    losses: Arc<Losses>,
    waiting: Arc<AtomicUsize>,
    settings: TraceSettings,
    exporter: SpanExporter,
    tracer: SdkTracer,
    sampled: Arc<Mutex<Vec<SpanData>>>,
}

/// Takes the spans that the sampler chose.
#[derive(Debug)]
struct Sampled(Arc<Mutex<Vec<SpanData>>>);

impl SpanProcessor for Sampled {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.0.lock().push(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The queue and the task that OpenTelemetry's environment variables ask for, for the instance of this name. `None` where
/// traces are off, and where the variables name a collector that cannot be spoken to: that is an error in the log, since
/// traces are not to keep the process from its work. Must run inside a Tokio runtime.
#[must_use]
pub fn traces_of_env(instance: &str) -> Option<(TraceQueue, TraceExport)> {
    let (settings, warnings) = TraceSettings::read(|name| env::var(name).ok());
    for warning in warnings {
        tracing::warn!(warning, "an OpenTelemetry variable is not followed");
    }
    let settings = settings?;
    match exporter(&settings) {
        Ok(exporter) => {
            tracing::info!(
                endpoint = settings.endpoint,
                protocol = ?settings.protocol,
                "pushes are exported as OpenTelemetry traces"
            );
            Some(pipeline(settings, exporter, &resource(instance)))
        }
        Err(error) => {
            tracing::error!(error, "traces are off: the exporter cannot be set up");
            None
        }
    }
}

fn pipeline(settings: TraceSettings, mut exporter: SpanExporter, resource: &Resource) -> (TraceQueue, TraceExport) {
    // Present from the start, so that an alert can distinguish zero from unknown.
    counter!("pilothouse_trace_spans_exported").increment(0);
    counter!("pilothouse_trace_spans_dropped").increment(0);
    exporter.set_resource(resource);
    let sampled = Arc::<Mutex<Vec<SpanData>>>::default();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(Sampled(sampled.clone()))
        .with_resource(resource.clone())
        .build();
    let (sender, receiver) = mpsc::channel(TRACES);
    let (losses, waiting) = (Arc::<Losses>::default(), Arc::<AtomicUsize>::default());
    let most_waiting = settings.most_waiting;
    let queue = TraceQueue { sender, losses: losses.clone(), waiting: waiting.clone(), most_waiting };
    let tracer = provider.tracer("pilothouse");
    (queue, TraceExport { receiver, losses, waiting, settings, exporter, tracer, sampled })
}

/// The resource of the environment variables; the service's name is `pilothouse` unless they name it.
fn resource(instance: &str) -> Resource {
    let named = Resource::builder().build();
    let service = named.get(&Key::from_static_str("service.name")).map(|name| name.to_string());
    let mut resource = Resource::builder();
    if service.is_none_or(|name| name.starts_with("unknown_service")) {
        resource = resource.with_service_name("pilothouse");
    }
    let own = [("service.version", env!("CARGO_PKG_VERSION")), ("service.instance.id", instance)];
    let missing = own.into_iter().filter(|(key, _)| named.get(&Key::from_static_str(key)).is_none());
    resource.with_attributes(missing.map(|(key, value)| KeyValue::new(key, value.to_string()))).build()
}

fn exporter(settings: &TraceSettings) -> Result<SpanExporter, String> {
    let authorities = settings.authorities.as_ref();
    let read = |path: &String| {
        let pem = fs::read(path).map_err(|e| format!("{path}: {e}"))?;
        let any = CertificateDer::pem_slice_iter(&pem).next().is_some();
        if any { Ok(pem) } else { Err(format!("{path} holds no certificate")) }
    };
    let authorities = authorities.map(read).transpose()?;
    let built = match settings.protocol {
        Protocol::Grpc => {
            let builder = SpanExporter::builder().with_tonic();
            match authorities {
                _ if !settings.is_tls() => builder,
                Some(pem) => builder.with_tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))),
                None => builder.with_tls_config(ClientTlsConfig::new().with_native_roots()),
            }
            .build()
        }
        Protocol::HttpProtobuf => {
            let connector = hyper_rustls::HttpsConnectorBuilder::new()
                .with_tls_config(tls(authorities.as_deref())?)
                .https_or_http()
                .enable_http1()
                .build();
            let client = HyperClient::new(connector, settings.timeout, None);
            SpanExporter::builder().with_http().with_http_client(client).with_protocol(OtlpProtocol::HttpBinary).build()
        }
    };
    built.map_err(|e| e.to_string())
}

/// The client side of TLS that trusts these authorities, or those of the machine.
fn tls(authorities: Option<&[u8]>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|e| format!("OTEL_EXPORTER_OTLP_CERTIFICATE: {e}"))?;
                roots.add(certificate).map_err(|e| format!("OTEL_EXPORTER_OTLP_CERTIFICATE: {e}"))?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

impl Losses {
    fn tell(&self, spans: usize, reason: &str) {
        counter!("pilothouse_trace_spans_dropped").increment(spans as u64);
        if let Some(spans) = self.lines.note(spans as u64) {
            tracing::warn!(spans, reason, "spans of traces are dropped");
        }
    }
}

impl TraceQueue {
    /// A queue for so many spans, and what is put into it.
    #[cfg(test)]
    pub fn for_test(most_waiting: usize) -> (Self, mpsc::Receiver<SpanTree>) {
        let (sender, receiver) = mpsc::channel(TRACES);
        (Self { sender, losses: Arc::default(), waiting: Arc::default(), most_waiting }, receiver)
    }

    /// Puts a trace into the queue, or drops it where too many wait. Never waits.
    pub fn offer(&self, trace: SpanTree) {
        let spans = trace.count();
        let waited = self.waiting.fetch_add(spans, Ordering::Relaxed);
        if waited + spans <= self.most_waiting && self.sender.try_send(trace).is_ok() {
            return;
        }
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
        self.losses.tell(spans, "the collector does not take them fast enough");
    }
}

impl TraceExport {
    /// Exports until `stop`, and then the traces that are in the queue by that time.
    pub async fn run(mut self, stop: CancellationToken) {
        while let Some(Some(trace)) = stop.run_until_cancelled(self.receiver.recv()).await {
            self.take(trace);
            let pause = Instant::now() + self.settings.delay;
            while self.sampled.lock().len() < self.settings.batch {
                let next = timeout_at(pause, self.receiver.recv());
                match stop.run_until_cancelled(next).await {
                    Some(Ok(Some(trace))) => self.take(trace),
                    _ => break,
                }
            }
            self.export().await;
        }
        while let Ok(trace) = self.receiver.try_recv() {
            self.take(trace);
        }
        self.export().await;
    }

    fn take(&self, trace: SpanTree) {
        let spans = trace.count();
        self.sample(trace, &Context::new());
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
    }

    fn sample(&self, trace: SpanTree, parent: &Context) {
        let SpanTree { span, end, error, children } = trace;
        let mut span = self.tracer.build_with_context(span, parent);
        if !span.is_recording() {
            return;
        }
        if let Some(error) = error {
            span.set_status(Status::error(error));
        }
        let within = Context::new().with_remote_span_context(span.span_context().clone());
        span.end_with_timestamp(end);
        children.into_iter().for_each(|child| self.sample(child, &within));
    }

    async fn export(&self) {
        loop {
            let batch: Vec<SpanData> = {
                let mut sampled = self.sampled.lock();
                let batch = sampled.len().min(self.settings.batch);
                sampled.drain(..batch).collect()
            };
            let spans = batch.len();
            if spans == 0 {
                return;
            }
            match timeout(self.settings.timeout, self.exporter.export(batch)).await {
                Ok(Ok(())) => counter!("pilothouse_trace_spans_exported").increment(spans as u64),
                Ok(Err(error)) => self.losses.tell(spans, &error.to_string()),
                Err(_) => self.losses.tell(spans, "the collector does not answer in time"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
