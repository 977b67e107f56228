//! Istio's standard metrics from a stock Envoy, which has not Istio's filter: its stats access logger counts requests and
//! connections, with Istio's names and labels.
//!
//! The workload itself is in its listeners (a view has [`OwnPeer`] where it counts), the endpoint of a request in the metadata
//! that EDS and CDS give it. The server of a request knows its client by a header that the client's Envoy sets and the server's
//! takes off. Invariants: nothing that the header says is believed without mutual TLS; it goes to services of the mesh
//! alone; a header of that name from elsewhere goes no further.
//!
//! [`OwnPeer`]: crate::push::OwnPeer
//!
//! Not counted: messages within gRPC streams, bytes of TCP connections before their end, and by a server the connections
//! themselves.

mod labels;
mod peers;

use std::collections::BTreeMap;

pub use peers::filters as peer_filters;

use super::{
    filter,
    overrides::{self, MetricOverride, ProviderMetrics, SideMetrics},
    providers,
};
use crate::{
    generate::{listener::inputs::Inputs, proxy_config::ListenerClass},
    proto::{
        envoy::{
            config::accesslog::v3::{
                AccessLog, AccessLogFilter, AndFilter, LogTypeFilter, access_log::ConfigType,
                access_log_filter::FilterSpecifier,
            },
            data::accesslog::v3::AccessLogType,
            extensions::access_loggers::stats::v3::{
                Config,
                config::{Counter, Histogram, Stat, Tag, histogram::Unit},
            },
            r#type::v3::Scope,
        },
        mesh::mesh_config::extension_provider::Provider,
        to_any,
    },
    push::OwnPeer,
};

const NAME: &str = "envoy.access_loggers.stats";
/// Prometheus sees the metrics as `envoy_istio_…`.
const PREFIX: &str = "istio";
/// The first version in which the number of its metrics can be bounded.
const BOUNDED: (u32, u32) = (1, 40);
/// Metrics of a kind that one Envoy keeps: labels of requests may be many.
const MOST: u32 = 50_000;
/// Labels that Telemetries add to one metric.
const MOST_TAGS: usize = 64;

/// The logs that count.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CountingLogs {
    /// Those of an HTTP connection manager.
    pub http: Vec<AccessLog>,
    /// Those of a TCP proxy; it has to log the start of connections.
    pub tcp: Vec<AccessLog>,
    /// Labels that are left out, each with the reason.
    pub refused: Vec<String>,
}

/// A metric: the name in the API, and its value; none counts by one.
struct Metric {
    name: &'static str,
    value: Option<(&'static str, Unit)>,
}

const OF_REQUESTS: [Metric; 4] = [
    Metric { name: "REQUEST_COUNT", value: None },
    Metric { name: "REQUEST_DURATION", value: Some(("%DURATION%", Unit::Milliseconds)) },
    Metric { name: "REQUEST_SIZE", value: Some(("%BYTES_RECEIVED%", Unit::Bytes)) },
    Metric { name: "RESPONSE_SIZE", value: Some(("%BYTES_SENT%", Unit::Bytes)) },
];

impl CountingLogs {
    /// The logs of these metrics; none where no Prometheus provider is among their providers, or the proxy cannot count.
    #[must_use]
    pub fn of(inputs: &Inputs, class: ListenerClass, metrics: &BTreeMap<&str, ProviderMetrics>) -> Self {
        let is_prometheus = |name: &str| {
            let provider = providers::find(inputs.mesh(), name).and_then(|p| p.provider.as_ref());
            matches!(provider, Some(Provider::Prometheus(_)))
        };
        // A second provider would count everything twice under one name.
        let sides = metrics.iter().filter(|(name, _)| is_prometheus(name)).map(|(_, metrics)| metrics.side_of(class));
        let side = sides.into_iter().find(|side| !side.disabled);
        let (Some(side), Some(own)) = (side, inputs.view.own.as_deref()) else { return Self::default() };
        let mut counting = Counting { inputs, own, class, side, refused: Vec::new() };
        let http = counting.http();
        let tcp = counting.tcp();
        counting.refused.sort();
        counting.refused.dedup();
        Self { http, tcp, refused: counting.refused }
    }

    /// Whether anything is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.http.is_empty() && self.tcp.is_empty()
    }
}

struct Counting<'a> {
    inputs: &'a Inputs<'a>,
    own: &'a OwnPeer,
    class: ListenerClass,
    side: &'a SideMetrics<'a>,
    refused: Vec<String>,
}

impl Counting<'_> {
    fn http(&mut self) -> Vec<AccessLog> {
        let (mut counters, mut histograms) = (Vec::new(), Vec::new());
        for Metric { name, value } in &OF_REQUESTS {
            let Some(stat) = self.stat(name, &labels::of_requests(self.own, self.class)) else { continue };
            match value {
                None => counters.push(one(stat)),
                Some((format, unit)) => histograms.push(Histogram {
                    stat: Some(stat),
                    unit: (*unit).into(),
                    value_format: (*format).to_string(),
                }),
            }
        }
        self.log(counters, histograms, None).into_iter().collect()
    }

    fn tcp(&mut self) -> Vec<AccessLog> {
        let labels = labels::of_connections(self.own, self.class);
        let mut opened: Vec<Counter> = self.stat("TCP_OPENED_CONNECTIONS", &labels).map(one).into_iter().collect();
        let mut ended: Vec<Counter> = self.stat("TCP_CLOSED_CONNECTIONS", &labels).map(one).into_iter().collect();
        for (name, format) in [("TCP_RECEIVED_BYTES", "%BYTES_RECEIVED%"), ("TCP_SENT_BYTES", "%BYTES_SENT%")] {
            let of = |stat| Counter { stat: Some(stat), value_format: format.to_string(), value_fixed: None };
            ended.extend(self.stat(name, &labels).map(of));
        }
        // A server connects before the handshake of its client is over: its identity is known at the end.
        if self.class == ListenerClass::SidecarInbound {
            ended.append(&mut opened);
        }
        let opened = self.log(opened, Vec::new(), Some(AccessLogType::TcpUpstreamConnected));
        opened.into_iter().chain(self.log(ended, Vec::new(), Some(AccessLogType::TcpConnectionEnd))).collect()
    }

    /// A metric with its labels, as Telemetries change them; `None` where it is off.
    fn stat(&mut self, name: &str, labels: &[(&'static str, String)]) -> Option<Stat> {
        let none = MetricOverride::default();
        let changed = self.side.overrides.get(name).unwrap_or(&none);
        if changed.disabled {
            return None;
        }
        let kept = labels.iter().filter(|(label, _)| !changed.tags.contains_key(label));
        let mut tags: Vec<Tag> = kept.map(|(label, format)| tag(label, format.clone())).collect();
        let set = changed.tags.iter().filter_map(|(label, value)| Some((*label, (*value)?)));
        for (number, (label, value)) in set.enumerate() {
            let known = || filter::evaluable(value).and_then(|()| labels::formatted(value));
            match if number < MOST_TAGS { known() } else { Err(format!("there are more than {MOST_TAGS}")) } {
                Ok(format) if !label.is_empty() => tags.push(tag(label, format)),
                Ok(_) => self.refused.push("a tag of a metric is left out: it has no name".to_string()),
                Err(reason) => self.refused.push(format!("tag {label:?} of metrics is left out: {reason}")),
            }
        }
        Some(Stat { name: overrides::exported(name).to_string(), tags })
    }

    fn log(
        &self,
        counters: Vec<Counter>,
        histograms: Vec<Histogram>,
        of_type: Option<AccessLogType>,
    ) -> Option<AccessLog> {
        if counters.is_empty() && histograms.is_empty() {
            return None;
        }
        let mut config = Config { counters, histograms, ..Config::default() };
        if self.inputs.view.metadata.envoy_version.is_some_and(|version| version >= BOUNDED) {
            config.stats_scope = Some(Scope {
                max_counters: Some(MOST),
                max_histograms: Some(MOST),
                prefix: PREFIX.to_string(),
                sharing_name: PREFIX.to_string(),
                ..Scope::default()
            });
        } else {
            #[allow(deprecated, reason = "the first versions know no other form")]
            config.stat_prefix.push_str(PREFIX);
        }
        Some(AccessLog {
            name: NAME.to_string(),
            filter: of_type.map(|of_type| log_type(of_type, false)),
            config_type: Some(ConfigType::TypedConfig(to_any(&config))),
        })
    }
}

/// The log without lines about the start of connections, which are for counting alone.
#[must_use]
pub fn without_starts(log: AccessLog) -> AccessLog {
    let no_start = log_type(AccessLogType::TcpUpstreamConnected, true);
    let filter = match log.filter {
        None => no_start,
        Some(own) => AccessLogFilter {
            filter_specifier: Some(FilterSpecifier::AndFilter(AndFilter { filters: vec![no_start, own] })),
        },
    };
    AccessLog { filter: Some(filter), ..log }
}

fn log_type(of_type: AccessLogType, exclude: bool) -> AccessLogFilter {
    let filter = LogTypeFilter { types: vec![of_type.into()], exclude };
    AccessLogFilter { filter_specifier: Some(FilterSpecifier::LogTypeFilter(filter)) }
}

fn one(stat: Stat) -> Counter {
    Counter { stat: Some(stat), value_format: String::new(), value_fixed: Some(1) }
}

fn tag(name: &str, value_format: String) -> Tag {
    Tag { name: name.to_string(), value_format, rules: None }
}
