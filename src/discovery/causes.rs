//! The objects that caused a push, each with the place that it is written in.

use std::sync::Arc;

use opentelemetry::KeyValue;

use crate::{
    model::{Kind, PushKey, Registry, Service, push_request::PushKind},
    push::PushContext,
};

/// A changed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    /// Only its endpoints, or the addresses of its name, changed.
    pub(super) only: Option<&'static str>,
    pub(super) kind: &'static str,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    /// `FILE:LINE`, or the source where there is no file; `None` for an object that no source holds.
    pub(super) place: Option<String>,
}

impl Cause {
    /// The object as attributes of a span or an event.
    pub(super) fn attributes(&self) -> Vec<KeyValue> {
        let mut attributes = vec![
            KeyValue::new("pilothouse.object.kind", self.kind),
            KeyValue::new("pilothouse.object.namespace", self.namespace.clone()),
            KeyValue::new("pilothouse.object.name", self.name.clone()),
        ];
        attributes.extend(self.place.clone().map(|place| KeyValue::new("pilothouse.object.place", place)));
        attributes.extend(self.only.map(|only| KeyValue::new("pilothouse.object.changed", only)));
        attributes
    }
}

/// The keys of a push with the contexts that name their objects: the one that it published, and the one before, which still
/// has what was deleted.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) keys: Vec<PushKey>,
    pub(super) now: Arc<PushContext>,
    pub(super) before: Option<Arc<PushContext>>,
}

impl Subject {
    /// The objects of the keys. Walks lists of objects: not for the way of a push.
    pub(super) fn causes(&self) -> Vec<Cause> {
        self.keys.iter().map(|key| self.cause(key)).collect()
    }

    fn cause(&self, key: &PushKey) -> Cause {
        let (kind, only, is_host) = match key.kind {
            PushKind::Config(Kind::ServiceEntry) => (Kind::ServiceEntry, None, true),
            PushKind::Config(kind) | PushKind::Object(kind) => (kind, None, false),
            PushKind::Endpoints => (Kind::ServiceEntry, Some("endpoints"), true),
            PushKind::DnsName => (Kind::ServiceEntry, Some("addresses"), true),
        };
        let contexts = || [Some(&self.now), self.before.as_ref()].into_iter().flatten();
        // Services of every registry have the key of a ServiceEntry under their host name.
        let service = contexts().filter(|_| is_host).find_map(|context| service(context, key));
        let (kind, name) = match service {
            Some(service) if service.registry == Registry::Kubernetes => (Kind::Service, service.object_name.clone()),
            Some(service) => (Kind::ServiceEntry, service.object_name.clone()),
            None => (kind, key.name.clone()),
        };
        let place = contexts().find_map(|context| place(context, kind, &key.namespace, &name));
        Cause { only, kind: kind.as_str(), namespace: key.namespace.clone(), name, place }
    }
}

fn service<'a>(context: &'a PushContext, key: &PushKey) -> Option<&'a Service> {
    let mut services = context.inputs.registry.services.iter();
    services.find(|s| *s.hostname == *key.name && *s.namespace == *key.namespace).map(|s| &**s)
}

fn place(context: &PushContext, kind: Kind, namespace: &str, name: &str) -> Option<String> {
    let mut configs = context.inputs.configs.list(kind).iter();
    configs.find(|c| *c.meta.name == *name && *c.meta.namespace == *namespace).map(|c| c.origin.place())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;
    use crate::{
        model::{ConfigSnapshot, Origin, decode},
        push::context::PushInputs,
        registry::ServiceEntryStore,
    };

    /// A context of these objects, each written in `mesh.yaml` in the line of its number.
    fn context(objects: &[serde_json::Value]) -> Arc<PushContext> {
        let configs = objects.iter().zip(1..).map(|(object, line)| {
            let file = Some(Arc::new(PathBuf::from("mesh.yaml")));
            let origin = Origin { file, line, source: "file:mesh".into(), ..Origin::default() };
            Arc::new(decode::from_value(object, origin).unwrap())
        });
        let configs = ConfigSnapshot::of(configs);
        let registry = ServiceEntryStore::of(Arc::default(), Arc::default(), &configs).snapshot();
        Arc::new(PushContext::build(PushInputs { configs, registry, ..PushInputs::default() }))
    }

    fn key(kind: PushKind, name: &str) -> PushKey {
        PushKey { kind, name: name.into(), namespace: "shop".into() }
    }

    #[test]
    fn objects_are_named_with_their_places() {
        let entry = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
            "metadata": {"name": "wares", "namespace": "shop"},
            "spec": {"hosts": ["wares.example"], "resolution": "STATIC", "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
                "endpoints": [{"address": "10.0.0.1"}]}});
        let route = json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
            "metadata": {"name": "wares", "namespace": "shop"},
            "spec": {"hosts": ["wares.example"], "http": [{"route": [{"destination": {"host": "wares.example"}}]}]}});
        let subject = Subject {
            keys: vec![
                key(PushKind::Config(Kind::VirtualService), "wares"),
                key(PushKind::Config(Kind::ServiceEntry), "wares.example"),
                key(PushKind::Endpoints, "wares.example"),
                key(PushKind::Config(Kind::Sidecar), "gone"),
            ],
            // The VirtualService was deleted.
            now: context(std::slice::from_ref(&entry)),
            before: Some(context(&[entry, route])),
        };
        let of = |only, kind, name: &str, place: Option<&str>| Cause {
            only,
            kind,
            namespace: "shop".into(),
            name: name.into(),
            place: place.map(ToString::to_string),
        };
        let expected = [
            of(None, "VirtualService", "wares", Some("mesh.yaml:2")),
            of(None, "ServiceEntry", "wares", Some("mesh.yaml:1")),
            of(Some("endpoints"), "ServiceEntry", "wares", Some("mesh.yaml:1")),
            of(None, "Sidecar", "gone", None),
        ];
        assert_eq!(subject.causes(), expected);
    }
}
