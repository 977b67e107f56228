//! TrafficExtensions and WasmPlugins, and the ones that apply to a workload (Istio's `TrafficExtensionWrapper`).
//!
//! A WasmPlugin is a TrafficExtension of an older form. Invariants: an extension counts in its own namespace, one of the root
//! namespace in all; those of one phase by priority, highest first, ties oldest first.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use super::{ProxyView, context::PushInputs, policies};
use crate::{
    model::{Config, Kind, Spec},
    proto::istio::{
        extensions::v1alpha1::{PluginType, TrafficSelector, WasmConfig, WasmPlugin, traffic_extension::FilterConfig},
        r#type::v1beta1::{PortSelector, WorkloadMode},
    },
};

/// The end of the name of an extension that was written as a WasmPlugin; no name of an object can hold it.
const OF_PLUGIN: &str = "~istio-translated-wasmplugin";
/// Longest program in Lua, as in Istio.
const LONGEST_PROGRAM: usize = 65_536;

/// The place of an extension among the filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Behind all of Istio's filters, before routing.
    Unspecified,
    /// Before tokens are verified.
    Authn,
    /// Before requests are authorized.
    Authz,
    /// Behind authorization, before metrics.
    Stats,
}

/// The traffic that an extension sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Requests.
    Http,
    /// Connections.
    Network,
}

/// The program of an extension.
#[derive(Debug, Clone, PartialEq)]
pub enum Program {
    /// A Wasm module.
    Wasm(Box<WasmConfig>),
    /// Text in Lua.
    Lua(String),
}

/// One extension.
#[derive(Debug, Clone, PartialEq)]
pub struct Extension {
    /// The object that it is from.
    pub config: Arc<Config>,
    /// Its name within the namespace.
    pub name: String,
    /// Its place among the filters.
    pub phase: Phase,
    /// Its program.
    pub program: Program,
    priority: i32,
    selectors: Vec<TrafficSelector>,
}

impl Extension {
    /// The extension of an object; `None` for other kinds, and without a program.
    #[must_use]
    pub fn of(config: &Arc<Config>) -> Option<Self> {
        let (name, phase, priority, selectors, program) = match &config.spec {
            Spec::TrafficExtension(spec) => {
                let program = match spec.filter_config.clone()? {
                    FilterConfig::Wasm(wasm) => Program::Wasm(Box::new(wasm)),
                    FilterConfig::Lua(lua) => Program::Lua(lua.inline_code),
                };
                (config.meta.name.to_string(), spec.phase, spec.priority, spec.r#match.clone(), program)
            }
            Spec::WasmPlugin(spec) => {
                let selector = |s: &crate::proto::istio::extensions::v1alpha1::wasm_plugin::TrafficSelector| {
                    TrafficSelector { mode: s.mode, ports: s.ports.clone() }
                };
                let selectors = spec.r#match.iter().map(selector).collect();
                let name = format!("{}{OF_PLUGIN}", config.meta.name);
                (name, spec.phase, spec.priority, selectors, Program::Wasm(Box::new(wasm_of(spec))))
            }
            _ => return None,
        };
        let is_usable = match &program {
            Program::Wasm(wasm) => !wasm.url.is_empty(),
            Program::Lua(text) => !text.is_empty() && text.len() <= LONGEST_PROGRAM,
        };
        let phase = match phase {
            1 => Phase::Authn,
            2 => Phase::Authz,
            3 => Phase::Stats,
            _ => Phase::Unspecified,
        };
        let priority = priority.unwrap_or(i32::MIN);
        is_usable.then(|| Self { config: config.clone(), name, phase, program, priority, selectors })
    }

    /// The traffic that it sees. Lua sees requests.
    #[must_use]
    pub fn level(&self) -> Level {
        match &self.program {
            Program::Wasm(wasm) if wasm.r#type() == PluginType::Network => Level::Network,
            _ => Level::Http,
        }
    }

    /// Whether it sees the traffic of a port, to (`server`) or from the workload; gateways are clients.
    #[must_use]
    pub fn sees(&self, server: bool, port: u32) -> bool {
        let of_mode = |mode: WorkloadMode| match mode {
            WorkloadMode::Client => !server,
            WorkloadMode::Server => server,
            WorkloadMode::Undefined | WorkloadMode::ClientAndServer => true,
        };
        let of_port =
            |ports: &[PortSelector]| ports.is_empty() || ports.iter().any(|p| p.number != 0 && p.number == port);
        self.selectors.is_empty() || self.selectors.iter().any(|s| of_mode(s.mode()) && of_port(&s.ports))
    }
}

/// The module of a WasmPlugin.
fn wasm_of(plugin: &WasmPlugin) -> WasmConfig {
    WasmConfig {
        url: plugin.url.clone(),
        sha256: plugin.sha256.clone(),
        image_pull_policy: plugin.image_pull_policy,
        image_pull_secret: plugin.image_pull_secret.clone(),
        verification_key: plugin.verification_key.clone(),
        plugin_config: plugin.plugin_config.clone(),
        plugin_name: plugin.plugin_name.clone(),
        fail_strategy: plugin.fail_strategy,
        vm_config: plugin.vm_config.clone(),
        r#type: plugin.r#type,
    }
}

/// Extensions by namespace, oldest first.
#[derive(Debug, Default)]
pub struct ExtensionIndex {
    root: Arc<str>,
    selectors_of_gateways: bool,
    by_namespace: HashMap<Arc<str>, Vec<Arc<Extension>>>,
}

impl ExtensionIndex {
    /// The kinds that this is made from.
    pub const KINDS: [Kind; 2] = [Kind::TrafficExtension, Kind::WasmPlugin];

    /// Builds the index.
    #[must_use]
    pub fn build(inputs: &PushInputs) -> Self {
        let mut by_namespace: HashMap<Arc<str>, Vec<Arc<Extension>>> = HashMap::new();
        let all = Self::KINDS.into_iter().flat_map(|kind| inputs.configs.list(kind));
        for extension in all.filter_map(Extension::of) {
            by_namespace.entry(extension.config.meta.namespace.clone()).or_default().push(Arc::new(extension));
        }
        for list in by_namespace.values_mut() {
            list.sort_by(|a, b| (a.config.meta.creation, &a.name).cmp(&(b.config.meta.creation, &b.name)));
        }
        Self {
            root: inputs.mesh.config.root_namespace.as_str().into(),
            selectors_of_gateways: inputs.features.enable_selector_based_k8s_gateway_policy,
            by_namespace,
        }
    }

    /// The extensions of a workload, in the order of their filters within a phase.
    #[must_use]
    pub fn of(&self, view: &ProxyView) -> Vec<Arc<Extension>> {
        let of = |namespace: &str| self.by_namespace.get(namespace).map_or(&[][..], Vec::as_slice);
        let rest = if view.namespace == self.root { &[][..] } else { of(&self.root) };
        let all = of(&view.namespace).iter().chain(rest);
        let applies = |e: &&Arc<Extension>| policies::applies(&e.config, view, self.selectors_of_gateways);
        let mut all: Vec<Arc<Extension>> = all.filter(applies).cloned().collect();
        all.sort_by_key(|extension| Reverse(extension.priority));
        all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        model::{ConfigSnapshot, Locality, Node, Origin, decode},
        push::PushContext,
    };

    fn object(kind: &str, namespace: &str, name: &str, spec: &Value) -> Arc<Config> {
        let document = json!({
            "apiVersion": "extensions.istio.io/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        });
        Arc::new(decode::from_value(&document, Origin::default()).expect("an extension"))
    }

    fn plugin(namespace: &str, name: &str, more: &Value) -> Arc<Config> {
        let mut spec = json!({"url": "https://files.example/a.wasm"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object("WasmPlugin", namespace, name, &spec)
    }

    fn of(configs: &[Arc<Config>], kind: &str, labels: &Value) -> Vec<String> {
        let configs = ConfigSnapshot::of(configs.iter().cloned());
        let context = PushContext::build(PushInputs { configs, ..PushInputs::default() });
        let id = format!("{kind}~10.0.0.1~p.shop~shop.svc.cluster.local");
        let node = Node::from_parts(&id, json!({"LABELS": labels}), Locality::default()).expect("a node");
        context.extensions.of(&context.view_of(&node)).iter().map(|e| e.name.clone()).collect()
    }

    #[test]
    fn priorities_go_before_age_and_selectors_choose() {
        let lua = json!({"lua": {"inlineCode": "x"}, "priority": 7});
        let all = [
            plugin("istio-system", "root", &json!({"priority": 9})),
            plugin("shop", "b", &json!({})),
            plugin("shop", "a", &json!({})),
            plugin("shop", "other", &json!({"selector": {"matchLabels": {"app": "other"}}})),
            plugin("bank", "far", &json!({})),
            object("TrafficExtension", "shop", "lua", &lua),
            object("TrafficExtension", "shop", "empty", &json!({})),
        ];
        let names = |plain: &[&str]| plain.iter().map(|n| n.replace('~', OF_PLUGIN)).collect::<Vec<_>>();
        assert_eq!(of(&all, "sidecar", &json!({"app": "web"})), names(&["root~", "lua", "a~", "b~"]));
        assert_eq!(of(&all, "sidecar", &json!({"app": "other"})), names(&["root~", "lua", "a~", "b~", "other~"]));
    }

    #[test]
    fn references_choose_a_gateway() {
        let target = json!({"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}]});
        let all = [plugin("shop", "edge", &target)];
        let labels = |name: &str| json!({"gateway.networking.k8s.io/gateway-name": name});
        assert_eq!(of(&all, "router", &labels("edge")).len(), 1);
        assert_eq!(of(&all, "router", &labels("rim")), [""; 0]);
        assert_eq!(of(&all, "sidecar", &json!({})), [""; 0]);
    }

    #[test]
    fn selectors_of_traffic_are_alternatives() {
        let with = |selectors: Value| Extension::of(&plugin("a", "b", &json!({"match": selectors}))).expect("one");
        let both = with(json!([{"mode": "SERVER", "ports": [{"number": 80}]}, {"mode": "CLIENT"}]));
        assert!(both.sees(true, 80) && !both.sees(true, 81) && both.sees(false, 81));
        let any = with(json!([]));
        assert!(any.sees(true, 1) && any.sees(false, 2));
    }
}
