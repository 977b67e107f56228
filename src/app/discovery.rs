//! The xDS server: its limits, from Istio's flags and the size of the machine, and its actor.

use std::sync::Arc;

use super::{process::Process, sources};
use crate::{
    discovery::{MeshGenerator, PushTraces, XdsServerActor, XdsServerHandle},
    model::Features,
    push::DebounceSettings,
    settings::{Settings, XdsSettings},
    xds::XdsOptions,
};

/// Starts the xDS server; clients are served when it is given a listener. `is_loopback` is true where clients over plain text
/// come from this machine alone.
pub(super) fn start(
    process: &Process,
    settings: &Settings,
    is_loopback: bool,
    traces: Option<Arc<PushTraces>>,
) -> XdsServerHandle {
    let Process { supervision, readiness, inputs, .. } = process;
    let Settings { xds, mesh, sources, runtime, .. } = settings;
    let options = XdsOptions {
        drain: runtime.shutdown / 4,
        // A plain-text connection proves no identity.
        trust_nodes: is_loopback && xds.trust_loopback.unwrap_or_else(|| sources::are_folders(sources)),
        cluster_aliases: mesh.cluster_aliases.iter().map(|a| (a.alias.clone(), a.cluster.as_str().into())).collect(),
        ..options(&inputs.features, xds)
    };
    let debounce = DebounceSettings::of(&inputs.features, |name| std::env::var_os(name).is_some());
    let generator = Arc::<MeshGenerator>::default();
    let ready = readiness.guard("first push");
    XdsServerActor::start(supervision, generator, options, inputs.reader(), debounce, ready, traces)
}

/// The options of these flags and settings.
fn options(features: &Features, settings: &XdsSettings) -> XdsOptions {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let defaults = XdsOptions::default();
    XdsOptions {
        build_threads: threads(features.push_throttle, cores),
        // Istio counts streams; here a stream costs little unless its view is new, and builds are bounded.
        max_requests_per_second: Some(features.max_requests_per_second).filter(|rate| *rate > 0.0),
        max_connections: settings.max_connections.unwrap_or(defaults.max_connections),
        max_streams: features.max_concurrent_streams,
        max_request_bytes: features.max_recv_msg_size as usize,
        keepalive: settings.keepalive,
        max_connection_age: settings.max_connection_age,
        unread: (settings.max_unread_bytes.unwrap_or(defaults.unread.0), defaults.unread.1),
        ..defaults
    }
}

/// More builds at once than there are cores do not help; 0 is the number of cores.
fn threads(throttle: u32, cores: usize) -> usize {
    match throttle as usize {
        0 => cores,
        throttle => throttle.min(cores),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_cores() {
        assert_eq!((threads(0, 4), threads(1, 4), threads(100, 4)), (4, 1, 4));
        let mut features = Features::default();
        assert_eq!(options(&features, &XdsSettings::default()).max_requests_per_second, None);
        for (name, value) in [
            ("PILOT_MAX_REQUESTS_PER_SECOND", "12.5"),
            ("ISTIO_GPRC_MAXSTREAMS", "7"),
            ("ISTIO_GPRC_MAXRECVMSGSIZE", "9"),
        ] {
            assert_eq!(features.set(name, value), Ok(true));
        }
        let settings = XdsSettings { max_connections: Some(3), max_unread_bytes: Some(5), ..XdsSettings::default() };
        let options = options(&features, &settings);
        assert_eq!(options.unread.0, 5);
        assert_eq!(options.max_requests_per_second, Some(12.5));
        assert_eq!((options.max_streams, options.max_request_bytes, options.max_connections), (7, 9, 3));
    }
}
