//! The inputs of all listeners of one proxy: the context, the view, and values read from them once.

use std::sync::Arc;

use crate::{
    generate::proxy_config::{self, ListenerClass, ProxyHeaders},
    model::{Features, Service},
    proto::{
        go_duration,
        mesh::{MeshConfig, ProxyConfig, mesh_config::outbound_traffic_policy::Mode, proxy_config::ConnectionSettings},
        wkt,
    },
    push::{ProxyView, PushContext, SidecarScope},
};

/// The inputs of listener generation for one view.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// All configuration.
    pub context: &'a PushContext,
    /// The proxy.
    pub view: &'a ProxyView,
    /// The part of the mesh that is visible to the proxy.
    pub scope: Arc<SidecarScope>,
    /// The proxy's own settings.
    pub proxy_config: ProxyConfig,
    /// Limits and timeouts of connections, with profile defaults.
    pub connection_settings: Option<ConnectionSettings>,
    /// Metadata `IDLE_TIMEOUT`.
    pub idle_timeout: Option<wkt::Duration>,
}

impl<'a> Inputs<'a> {
    /// Reads them.
    #[must_use]
    pub fn new(context: &'a PushContext, view: &'a ProxyView) -> Self {
        let proxy_config = proxy_config::effective(context, view);
        let connection_settings = proxy_config::connection_settings(context, view, &proxy_config);
        let idle_timeout = go_duration(&view.metadata.idle_timeout).and_then(|d| wkt::Duration::try_from(d).ok());
        Self { context, view, scope: context.scope(view), proxy_config, connection_settings, idle_timeout }
    }

    /// Mesh settings.
    #[must_use]
    pub fn mesh(&self) -> &'a MeshConfig {
        &self.context.mesh().config
    }

    /// Feature flags.
    #[must_use]
    pub fn features(&self) -> &'a Features {
        self.context.features()
    }

    /// Header settings for a class of listener.
    #[must_use]
    pub fn headers(&self, class: ListenerClass) -> ProxyHeaders {
        ProxyHeaders::of(&self.proxy_config, class)
    }

    /// The proxy is Istio's build of Envoy, which has Istio's filters.
    #[must_use]
    pub fn is_istio_proxy(&self) -> bool {
        self.view.is_istio_proxy()
    }

    /// Whether the proxy is Istio's of at least one version, or another Envoy of at least the other; one that tells no version is
    /// taken for the newest.
    #[must_use]
    pub fn is_at_least(&self, istio: (u32, u32), envoy: (u32, u32)) -> bool {
        let metadata = &self.view.metadata;
        match self.is_istio_proxy() {
            true => version(&metadata.istio_version).is_none_or(|own| own >= istio),
            false => metadata.envoy_version.is_none_or(|own| own >= envoy),
        }
    }

    /// HTTP/1.0 is accepted.
    #[must_use]
    pub fn http10(&self) -> bool {
        self.features().http10 || self.view.metadata.http10
    }

    /// The addresses that stand for "every address" of the proxy's families, IPv4 first.
    #[must_use]
    pub fn wildcards(&self) -> &'static [&'static str] {
        by_family(self.view, &["0.0.0.0", "::"])
    }

    /// The loopback addresses of the proxy's families, IPv4 first.
    #[must_use]
    pub fn localhosts(&self) -> &'static [&'static str] {
        by_family(self.view, &["127.0.0.1", "::1"])
    }

    /// ALPN names that distinguish plaintext HTTP from other traffic; with HTTP/1.0 only where it is accepted.
    #[must_use]
    pub fn plaintext_http_alpns(&self) -> Vec<String> {
        // Istio reads the flag only: metadata `HTTP10` does not widen the match.
        let names: &[&str] =
            if self.features().http10 { &["http/1.0", "http/1.1", "h2c"] } else { &["http/1.1", "h2c"] };
        names.iter().map(|n| (*n).to_string()).collect()
    }

    /// Policy for destinations that the scope does not know.
    #[must_use]
    pub fn outbound_mode(&self) -> Mode {
        let mode = Mode::try_from(self.scope.outbound_traffic_policy.mode).unwrap_or(Mode::RegistryOnly);
        // Only sidecars resolve unknown hosts themselves.
        if mode == Mode::AllowAnyDynamicDns && self.view.is_router() { Mode::RegistryOnly } else { mode }
    }

    /// The service of a host in the proxy's scope.
    #[must_use]
    pub fn service(&self, host: &str) -> Option<&Arc<Service>> {
        self.scope.services_by_host.get(host)
    }
}

fn by_family(view: &ProxyView, both: &'static [&'static str; 2]) -> &'static [&'static str] {
    match (view.ipv4, view.ipv6) {
        (true, true) => both,
        (false, true) => &both[1..],
        _ => &both[..1],
    }
}

/// Major and minor number of a version like `1.29.0-alpha`; `None` for another text.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
