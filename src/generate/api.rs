//! Config objects as resources (MCP), as Istio's "api" generator sends them, so that one control plane feeds another.
//!
//! Every carried kind of the main cluster is sent as it is in force. A service that does not come from a ServiceEntry is
//! also sent as a synthetic one, without endpoints, to clients that do not read Kubernetes objects (Istio reads none here).
//! Those get hosts of DestinationRules in full, as istiod sends them: a client may have another domain, or none.

use std::{borrow::Cow, sync::Arc};

use super::addresses;
use crate::{
    model::{
        Config, ConfigSnapshot, Kind, Meta, Origin, Registry, Resolution, Service, Spec, Status, Visibility,
        host::resolve_short_name,
        mcp::{is_carried, to_resource},
        packed::Packed,
    },
    proto::{istio::mcp::v1alpha1 as mcp, networking},
    push::{ProxyView, PushContext},
};

/// The generator that a client of config objects names in its metadata.
pub const GENERATOR: &str = "api";

/// Node metadata of a client that reads Kubernetes objects itself and wants no objects derived from them.
pub const NATIVE: &str = "PILOTHOUSE_NATIVE";

/// Whether the view belongs to a client of config objects.
#[must_use]
pub fn is_client(view: &ProxyView) -> bool {
    &*view.metadata.generator == GENERATOR
}

/// All objects of a kind, by name (`namespace/name`).
#[must_use]
pub fn resources(context: &PushContext, view: &ProxyView, kind: Kind) -> Vec<(String, mcp::Resource)> {
    if !is_carried(kind) {
        return Vec::new();
    }
    let native = is_native(view);
    // Objects translated from other APIs have no source; a client that reads those APIs translates them itself.
    let translated = |c: &Config| native && c.origin.source.is_empty();
    let carried = |c: &&Arc<Config>| c.origin.cluster.is_empty() && !translated(c);
    let domain = (!native).then_some(&*context.mesh().domain);
    let objects = context.inputs.configs.list(kind).iter().filter(carried);
    let mut made: Vec<_> = objects.filter_map(|c| named(&with_full_host(c, domain))).collect();
    if kind == Kind::ServiceEntry && !native {
        let scope = context.scope(view);
        let others = scope.services.iter().filter(|s| s.registry != Registry::External);
        made.extend(others.filter_map(|service| named(&synthetic(context, view, service))));
    }
    made
}

/// Whether the objects of a kind may be others in one snapshot than in the other.
#[must_use]
pub fn differ(before: &ConfigSnapshot, now: &ConfigSnapshot, kind: Kind) -> bool {
    !std::ptr::eq(before.list(kind), now.list(kind))
}

/// Whether the client reads Kubernetes objects itself.
#[must_use]
pub fn is_native(view: &ProxyView) -> bool {
    view.metadata.other(NATIVE) == "true"
}

/// The object with the host of a DestinationRule in full, where a domain is given.
fn with_full_host<'a>(config: &'a Config, domain: Option<&str>) -> Cow<'a, Config> {
    let written = Cow::Borrowed(config);
    let (Some(domain), Some(rule)) = (domain, config.destination_rule()) else { return written };
    let host = resolve_short_name(&rule.host, &config.meta.namespace, domain);
    if *host == *rule.host {
        return written;
    }
    let rule = networking::DestinationRule { host: host.to_string(), ..rule.clone() };
    Cow::Owned(Config { spec: Spec::DestinationRule(Arc::new(rule)), ..config.clone() })
}

fn named(config: &Config) -> Option<(String, mcp::Resource)> {
    match to_resource(config) {
        Ok(resource) => Some((format!("{}/{}", config.meta.namespace, config.meta.name), resource)),
        Err(error) => {
            tracing::warn!(object = %config.key(), %error, "an object cannot be sent as a resource");
            None
        }
    }
}

/// A service as a ServiceEntry (Istio's `ServiceToServiceEntry`).
fn synthetic(context: &PushContext, view: &ProxyView, service: &Service) -> Config {
    let addresses = match view.cluster_id.is_empty() {
        true => service.cluster_vips.values().flatten().cloned().collect(),
        false => addresses::all_addresses(service, view, context.features()),
    };
    let resolution = match service.resolution {
        Resolution::ClientSideLB => networking::service_entry::Resolution::Static,
        Resolution::DnsLB => networking::service_entry::Resolution::Dns,
        Resolution::DnsRoundRobinLB => networking::service_entry::Resolution::DnsRoundRobin,
        Resolution::DynamicDns => networking::service_entry::Resolution::DynamicDns,
        Resolution::Passthrough | Resolution::Alias => networking::service_entry::Resolution::None,
    };
    let location = match service.mesh_external {
        true => networking::service_entry::Location::MeshExternal,
        false => networking::service_entry::Location::MeshInternal,
    };
    let visible = |v: &Visibility| match v {
        Visibility::Private => ".".to_string(),
        Visibility::Public => "*".to_string(),
        Visibility::None => "~".to_string(),
        Visibility::Namespace(name) => name.to_string(),
    };
    let port = |p: &crate::model::Port| networking::ServicePort {
        number: p.port,
        name: p.name.to_string(),
        protocol: p.protocol.as_str().to_string(),
        ..Default::default()
    };
    let selects = !service.label_selectors.is_empty();
    let entry = networking::ServiceEntry {
        hosts: vec![service.hostname.to_string()],
        addresses,
        ports: service.ports.iter().map(port).collect(),
        location: location.into(),
        resolution: resolution.into(),
        workload_selector: selects.then(|| networking::WorkloadSelector { labels: service.label_selectors.clone() }),
        export_to: service.export_to.iter().map(visible).collect(),
        subject_alt_names: service.service_accounts.clone(),
        ..Default::default()
    };
    let meta = Meta {
        name: format!("synthetic-{}", service.name).into(),
        namespace: service.namespace.clone(),
        api_version: Kind::ServiceEntry.api_version().into(),
        creation: service.creation_time,
        ..Meta::default()
    };
    let spec = Spec::ServiceEntry(Packed::of(&entry));
    Config { meta, spec, status: Status::default(), origin: Origin::default(), stamp: service.stamp }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        model::{Locality, Node, Port, Protocol, RegistrySnapshot, decode::from_value, mcp::from_resource},
        push::context::PushInputs,
    };

    fn context() -> PushContext {
        let object = |kind: &str, name: &str, source: &str| {
            let document = json!({"apiVersion": "networking.istio.io/v1", "kind": kind, "spec": {"hosts": ["x.example"]},
                "metadata": {"name": name, "namespace": "shop"}});
            Arc::new(from_value(&document, Origin { source: source.into(), ..Origin::default() }).unwrap())
        };
        let service = Service {
            hostname: "web.shop.svc.cluster.local".into(),
            namespace: "shop".into(),
            name: "web".into(),
            registry: Registry::Kubernetes,
            ports: vec![Port { name: "http".into(), port: 80, protocol: Protocol::Http }],
            ..Service::default()
        };
        let registry = RegistrySnapshot { services: Arc::new(vec![Arc::new(service)]), ..Default::default() };
        let configs = ConfigSnapshot::of([
            object("ServiceEntry", "e", "file:x"),
            object("VirtualService", "v", "file:x"),
            object("VirtualService", "made", ""),
        ]);
        PushContext::build(PushInputs { configs, registry, ..PushInputs::default() })
    }

    fn names(context: &PushContext, metadata: serde_json::Value, kind: Kind) -> Vec<String> {
        let id = "sidecar~10.0.0.1~upstream.shop~shop.svc.cluster.local";
        let node = Node::from_parts(id, metadata, Locality::default()).unwrap();
        let view = context.view_of(&node);
        resources(context, &view, kind).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn services_of_other_registries_are_made_up_for_readers_without_registries() {
        let (context, istio) = (context(), json!({"GENERATOR": "api"}));
        assert_eq!(names(&context, istio.clone(), Kind::ServiceEntry), ["shop/e", "shop/synthetic-web"]);
        let native = json!({"GENERATOR": "api", NATIVE: "true"});
        assert_eq!(names(&context, native.clone(), Kind::ServiceEntry), ["shop/e"]);
        assert_eq!(names(&context, istio, Kind::VirtualService).len(), 2);
        assert_eq!(
            names(&context, native, Kind::VirtualService),
            ["shop/v"],
            "a control plane that reads routes translates them again"
        );
    }

    #[test]
    fn short_hosts_of_destination_rules_are_sent_in_full_to_readers_of_another_domain() {
        let object = |name: &str, host: &str| {
            let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
                "metadata": {"name": name, "namespace": "shop"}, "spec": {"host": host, "subsets": [{"name": "v1"}]}});
            Arc::new(from_value(&document, Origin { source: "file:x".into(), ..Origin::default() }).unwrap())
        };
        let objects = [object("full", "a.example"), object("short", "reviews"), object("wide", "*.example")];
        let configs = ConfigSnapshot::of(objects.clone());
        let context = PushContext::build(PushInputs { configs, ..PushInputs::default() });
        let hosts = |metadata: serde_json::Value| -> Vec<String> {
            let id = "sidecar~10.0.0.1~upstream.shop~shop.svc.cluster.local";
            let node = Node::from_parts(id, metadata, Locality::default()).unwrap();
            let sent = resources(&context, &context.view_of(&node), Kind::DestinationRule);
            let read = |(_, resource)| {
                let kind = Kind::DestinationRule;
                from_resource(kind, &kind.api_version(), resource, Origin::default()).unwrap()
            };
            let sent: Vec<Config> = sent.into_iter().map(read).collect();
            assert!(sent.iter().all(|c| c.destination_rule().unwrap().subsets.len() == 1));
            sent.iter().map(|c| c.destination_rule().unwrap().host.clone()).collect()
        };
        let full = ["a.example", "reviews.shop.svc.cluster.local", "*.example"];
        assert_eq!(hosts(json!({"GENERATOR": "api"})), full);
        assert_eq!(hosts(json!({"GENERATOR": "api", NATIVE: "true"})), ["a.example", "reviews", "*.example"]);
    }

    #[test]
    fn a_kind_differs_when_its_list_was_replaced() {
        let (one, other) = (context().inputs.configs, context().inputs.configs);
        assert!(!differ(&one, &one.clone(), Kind::ServiceEntry));
        assert!(differ(&one, &other, Kind::ServiceEntry));
    }
}
