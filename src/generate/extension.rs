//! Filters of extensions: Lua in place, Wasm modules over ECDS (Istio's `core/extension`). A module that Envoy itself fetches is in
//! place too: Envoy starts to fetch with the listener, and never after a change over ECDS.
//!
//! Istio's proxies have an agent that fetches modules of any kind. A stock Envoy fetches itself: files, and modules over HTTP
//! whose digest is given, through a cluster that is made for their server. A module that it cannot fetch is loaded by nobody:
//! its place is taken by a filter that refuses everything, or by none where the extension is to fail open, and its object says so.
//! Envoy refuses the configuration of a file that is absent or no module. Until it takes one, the failure strategy is in force
//! by a filter that the listener holds as its default.

mod module;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use module::{clusters, not_loaded};

use self::module::{Agent, Source};
use super::{
    listener::filter::{http_filter, network_filter},
    proxy_config::ListenerClass,
};
use crate::{
    model::{ConfigKey, Identity},
    proto::{
        envoy::{
            config::{
                core::v3::{
                    AggregatedConfigSource, ApiVersion, ConfigSource, DataSource, ExtensionConfigSource,
                    TypedExtensionConfig, config_source::ConfigSourceSpecifier, data_source::Specifier,
                },
                listener::v3::{Filter, filter::ConfigType as NetworkConfig},
                rbac::v3::Rbac,
            },
            extensions::{
                filters::{
                    http::{lua::v3::Lua, rbac::v3::Rbac as HttpRbac, wasm::v3::Wasm as HttpWasm},
                    network::{
                        http_connection_manager::v3::{HttpFilter, http_filter::ConfigType},
                        rbac::v3::Rbac as NetworkRbac,
                        wasm::v3::Wasm as NetworkWasm,
                    },
                },
                wasm::v3::PluginConfig,
            },
        },
        istio::extensions::v1alpha1::WasmConfig,
        seconds, to_any, wkt,
    },
    push::{
        ProxyView, PushContext,
        extensions::{Extension, Level, Phase, Program},
    },
};

/// Resources of extensions have this before namespace and name.
const PREFIX: &str = "extensions.istio.io/trafficextension/";
/// Prefix of statistics of filters that stand for a module.
const REFUSING: &str = "extension_not_loaded";

/// The extensions of a proxy.
#[derive(Debug, Clone, Default)]
pub struct Extensions {
    all: Vec<Arc<Extension>>,
    istio_proxy: bool,
}

impl Extensions {
    /// Those that apply to it.
    #[must_use]
    pub fn of(context: &PushContext, view: &ProxyView) -> Self {
        Self { all: context.extensions.of(view), istio_proxy: view.is_istio_proxy() }
    }

    fn at(&self, level: Level, phase: Phase, class: ListenerClass, port: u32) -> impl Iterator<Item = &Extension> {
        let server = class == ListenerClass::SidecarInbound;
        let of_place = move |e: &&Arc<Extension>| e.level() == level && e.phase == phase && e.sees(server, port);
        self.all.iter().filter(of_place).map(|e| &**e)
    }

    /// The HTTP filters of a phase, for a listener's port.
    pub fn http(&self, phase: Phase, class: ListenerClass, port: u32) -> impl Iterator<Item = HttpFilter> {
        self.at(Level::Http, phase, class, port).filter_map(|extension| {
            let name = resource_name(extension);
            match self.fetched(extension) {
                Fetched::InPlace(text) => {
                    let source =
                        DataSource { specifier: Some(Specifier::InlineString(text.clone())), ..Default::default() };
                    Some(http_filter(&name, &Lua { default_source_code: Some(source), ..Lua::default() }))
                }
                Fetched::ByEnvoy(config) => Some(http_filter(&name, &HttpWasm { config: Some(*config) })),
                Fetched::OverEcds { without_it } => Some(HttpFilter {
                    name,
                    config_type: Some(ConfigType::ConfigDiscovery(over_ads(
                        ["envoy.extensions.filters.http.wasm.v3.Wasm", "envoy.extensions.filters.http.rbac.v3.RBAC"],
                        without_it.map(|fate| to_any(&fate.of_requests())),
                    ))),
                    ..HttpFilter::default()
                }),
                Fetched::ByNobody(fate @ Fate::Refused) => Some(http_filter(&name, &fate.of_requests())),
                Fetched::ByNobody(Fate::Passes) => None,
            }
        })
    }

    /// The network filters of a phase, for a listener's port.
    pub fn network(&self, phase: Phase, class: ListenerClass, port: u32) -> impl Iterator<Item = Filter> {
        self.at(Level::Network, phase, class, port).filter_map(|extension| {
            let name = resource_name(extension);
            match self.fetched(extension) {
                Fetched::ByEnvoy(config) => Some(network_filter(&name, &NetworkWasm { config: Some(*config) })),
                Fetched::OverEcds { without_it } => Some(Filter {
                    name,
                    config_type: Some(NetworkConfig::ConfigDiscovery(over_ads(
                        [
                            "envoy.extensions.filters.network.wasm.v3.Wasm",
                            "envoy.extensions.filters.network.rbac.v3.RBAC",
                        ],
                        without_it.map(|fate| to_any(&fate.of_connections())),
                    ))),
                }),
                Fetched::ByNobody(fate @ Fate::Refused) => Some(network_filter(&name, &fate.of_connections())),
                Fetched::InPlace(_) | Fetched::ByNobody(Fate::Passes) => None,
            }
        })
    }

    /// The network filters of all phases, before a connection manager.
    #[must_use]
    pub fn before_http(&self, class: ListenerClass, port: u32) -> Vec<Filter> {
        let phases = [Phase::Authn, Phase::Authz, Phase::Stats, Phase::Unspecified];
        phases.into_iter().flat_map(|phase| self.network(phase, class, port)).collect()
    }

    fn fetched<'a>(&self, extension: &'a Extension) -> Fetched<'a> {
        let wasm = match &extension.program {
            Program::Lua(text) => return Fetched::InPlace(text),
            Program::Wasm(wasm) => wasm,
        };
        match Source::of(wasm, self.istio_proxy) {
            Ok(source @ Source::Server { .. }) => {
                Fetched::ByEnvoy(Box::new(module::plugin(extension, wasm, &source, None)))
            }
            // As Istio has it: an agent fetches before Envoy sees the configuration.
            Ok(Source::File(_) | Source::Agent { .. }) if self.istio_proxy => Fetched::OverEcds { without_it: None },
            Ok(Source::File(_) | Source::Agent { .. }) => Fetched::OverEcds { without_it: Some(Fate::without(wasm)) },
            Err(_) => Fetched::ByNobody(Fate::without(wasm)),
        }
    }
}

/// How a proxy comes by the program of an extension.
enum Fetched<'a> {
    /// It is in the listener.
    InPlace(&'a String),
    /// Envoy asks a server for it.
    ByEnvoy(Box<PluginConfig>),
    /// The proxy asks for it by name. A default is in force where it refuses the configuration.
    OverEcds { without_it: Option<Fate> },
    /// It cannot be loaded.
    ByNobody(Fate),
}

/// The fate of traffic whose extension is not loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Refused,
    Passes,
}

impl Fate {
    /// By the failure strategy.
    fn without(wasm: &WasmConfig) -> Self {
        if module::fails_open(wasm) { Self::Passes } else { Self::Refused }
    }

    /// Rules that allow nothing, or none.
    fn rules(self) -> Option<Rbac> {
        (self == Self::Refused).then(Rbac::default)
    }

    fn of_requests(self) -> HttpRbac {
        HttpRbac { rules: self.rules(), ..HttpRbac::default() }
    }

    fn of_connections(self) -> NetworkRbac {
        NetworkRbac { rules: self.rules(), stat_prefix: REFUSING.to_string(), ..NetworkRbac::default() }
    }
}

/// The name of the resource and of the filter.
#[must_use]
pub fn resource_name(extension: &Extension) -> String {
    format!("{PREFIX}{}.{}", extension.config.meta.namespace, extension.name)
}

/// A proxy waits for the extension: it may be there for security.
fn over_ads(types: [&str; 2], default: Option<wkt::Any>) -> ExtensionConfigSource {
    ExtensionConfigSource {
        config_source: Some(ConfigSource {
            config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
            initial_fetch_timeout: Some(seconds(0)),
            resource_api_version: ApiVersion::V3.into(),
            ..ConfigSource::default()
        }),
        type_urls: types.map(|name| format!("type.googleapis.com/{name}")).to_vec(),
        default_config: default,
        ..ExtensionConfigSource::default()
    }
}

/// The extension of this resource name for a proxy that proved this identity, whose agent is sent the secret that its registry
/// asks for. `None` for a name that is no module of an extension of the proxy.
#[must_use]
pub fn configuration(
    context: &PushContext,
    view: &ProxyView,
    name: &str,
    identity: Option<&Identity>,
) -> Option<TypedExtensionConfig> {
    let extension = named(context, view, name)?;
    let Program::Wasm(wasm) = &extension.program else { return None };
    let source = Source::of(wasm, view.is_istio_proxy()).ok()?;
    let agent = view.is_istio_proxy().then_some(Agent { context, view, identity });
    let config = Some(module::plugin(&extension, wasm, &source, agent.as_ref()));
    let typed_config = match extension.level() {
        Level::Http => to_any(&HttpWasm { config }),
        Level::Network => to_any(&NetworkWasm { config }),
    };
    Some(TypedExtensionConfig { name: name.to_string(), typed_config: Some(typed_config) })
}

/// The object of the extension of this resource name.
#[must_use]
pub fn object_of(context: &PushContext, view: &ProxyView, name: &str) -> Option<ConfigKey> {
    named(context, view, name).map(|extension| extension.config.key())
}

fn named(context: &PushContext, view: &ProxyView, name: &str) -> Option<Arc<Extension>> {
    context.extensions.of(view).into_iter().find(|extension| resource_name(extension) == name)
}
