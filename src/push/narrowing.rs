//! From a node to its view: adds the registry's data on the node and removes the data that no generator reads, so that as
//! many proxies as possible have equal views.
//!
//! Invariant: a label that some selector or setting of the snapshot reads is never removed
//! ([`ReadKeys`](super::read_keys::ReadKeys)).

use std::{collections::BTreeSet, sync::Arc};

use super::{
    OwnPeer, ProxyView, PushContext,
    view::{SpanNames, TEMPLATE_HASHES},
};
use crate::model::{
    Labels, Locality, Node, NodeMetadata, NodeType, Resolution, Workload, labels::whole_locality,
    node::InterceptionMode,
};

impl PushContext {
    /// The narrowed view of a node: labels from the registry where it knows the IP (they win over the node's), restricted to
    /// keys that some selector reads; own services by IP.
    #[must_use]
    pub fn view_of(&self, node: &Node) -> ProxyView {
        let mut view = ProxyView::of_node(node);
        let registry = &self.inputs.registry;
        let workload = registry.workload_of(node);
        view.labels = labels_with(node, workload.as_ref());
        let known = workload.map(|w| w.locality).filter(|locality| !locality.is_empty());
        if let Some(locality) = known.or_else(|| locality_of(&view.labels)) {
            view.locality = locality;
        }
        view.targets = registry.targets_of(node).into();
        view.patches = self.envoy_filters.of(node, &view);
        let keys = &*self.read_keys;
        if keys.counts {
            view.own = OwnPeer::of(node, &view.labels).map(Arc::new);
            view.counts = view.own.is_some();
        }
        if keys.span_names {
            view.span_names = span_names(node, &view.labels);
        }
        let read = if view.is_router() { &keys.router } else { &keys.sidecar };
        let finds_itself = node.metadata.finds_itself();
        view.labels
            .retain(|key, _| read.contains(key.as_str()) || (finds_itself && TEMPLATE_HASHES.contains(&key.as_str())));
        view.metadata = Arc::new(self.read_metadata(&node.metadata));
        if !self.reads_own_ips(&view) {
            view.ips.clear();
        }
        view
    }

    /// The labels of a proxy's workload: those of the registry where it knows the workload, else those that the node tells.
    #[must_use]
    pub fn labels_of(&self, node: &Node) -> Labels {
        labels_with(node, self.inputs.registry.workload_of(node).as_ref())
    }

    /// Whether the resources of a view can hold its own IPs.
    fn reads_own_ips(&self, view: &ProxyView) -> bool {
        let has_ingress = || {
            let sidecar = self.sidecars.sidecar_of(view).and_then(|config| config.sidecar());
            sidecar.is_some_and(|spec| !spec.ingress.is_empty())
        };
        view.node_type != NodeType::Sidecar
            || !view.metadata.generator.is_empty()
            || view.metadata.interception_mode == InterceptionMode::None
            || self.serves_headless(view)
            || has_ingress()
    }

    /// Whether the workload serves a headless service: such a service's listeners leave its own IP out.
    fn serves_headless(&self, view: &ProxyView) -> bool {
        view.targets.iter().any(|target| target.service.resolution == Resolution::Passthrough)
    }

    /// The half of a sidecar's view that its outbound resources depend on: no own services, only the labels that they read,
    /// and the own IP only where it is an endpoint of a headless service.
    #[must_use]
    pub fn outbound_view(&self, view: &ProxyView) -> ProxyView {
        let mut half = view.outbound(self.serves_headless(view));
        half.ips.truncate(1);
        without_workload(&mut half);
        half.patches = view.patches.outbound();
        restrict(&mut half.labels, &self.read_keys.outbound);
        half
    }

    /// The part of the outbound half that clusters, endpoints and routes depend on: without the inputs of listeners alone
    /// (own IP, labels that become tags of traces). Shared by more workloads than the whole half.
    #[must_use]
    pub fn routing_view(&self, view: &ProxyView) -> ProxyView {
        let mut part = view.outbound(false);
        part.span_names = SpanNames::default();
        part.own = None;
        without_workload(&mut part);
        part.patches = view.patches.routing();
        restrict(&mut part.labels, &self.read_keys.routing);
        part
    }

    /// Metadata without the fields that no generator reads and that name the single workload.
    fn read_metadata(&self, metadata: &NodeMetadata) -> NodeMetadata {
        let mut read = metadata.clone();
        read.service_account = Arc::default();
        if !metadata.finds_itself() {
            read.workload_name = Arc::default();
        }
        read.pod_ports = Arc::default();
        if !self.read_keys.node_name {
            read.node_name = Arc::default();
        }
        read
    }
}

/// The name of the workload counts for its own endpoints alone.
fn without_workload(half: &mut ProxyView) {
    if !half.metadata.workload_name.is_empty() {
        Arc::make_mut(&mut half.metadata).workload_name = Arc::default();
    }
}

fn restrict(labels: &mut Labels, keys: &BTreeSet<Arc<str>>) {
    labels.retain(|key, _| keys.contains(key.as_str()));
}

/// The names of a proxy's service for spans, from the labels that it has before they are restricted (Istio's
/// `otelServiceName`).
fn span_names(node: &Node, labels: &Labels) -> SpanNames {
    let annotation = node.raw_metadata["ANNOTATIONS"]["resource.opentelemetry.io/service.name"].as_str();
    let label = |key: &str| labels.get(key).map(String::as_str);
    let pod = node.id.split_once('.').map(|(pod, _)| pod);
    let container = node.raw_metadata["APP_CONTAINERS"].as_str().filter(|names| !names.contains(','));
    let given = [
        annotation,
        label("app.kubernetes.io/instance"),
        label("app.kubernetes.io/name"),
        Some(&*node.metadata.workload_name),
        pod,
        container,
    ];
    let service = given.into_iter().flatten().find(|name| !name.is_empty()).unwrap_or("unknown_service");
    SpanNames { cluster: node.service_cluster.clone(), service: service.into() }
}

fn labels_with(node: &Node, workload: Option<&Workload>) -> Labels {
    let Some(workload) = workload else { return node.labels.clone() };
    let mut labels = static_labels(node);
    labels.extend(workload.labels.clone());
    labels
}

/// Labels that a node carries whatever the registry says.
fn static_labels(node: &Node) -> Labels {
    let labels = node.raw_metadata.get("STATIC_LABELS").and_then(serde_json::Value::as_object);
    let text = |(key, value): (&String, &serde_json::Value)| Some((key.clone(), value.as_str()?.to_string()));
    labels.into_iter().flatten().filter_map(text).collect()
}

/// The locality that labels tell: the topology labels of Kubernetes, else the label with the whole locality.
fn locality_of(labels: &Labels) -> Option<Locality> {
    let keys = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"];
    if keys.iter().any(|key| labels.contains_key(*key)) {
        let part = |key: &str| labels.get(key).map_or("", String::as_str).into();
        let [region, zone, subzone] = keys.map(part);
        return Some(Locality { region, zone, subzone });
    }
    whole_locality(labels).map(|text| Locality::parse(&text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Config, ConfigSnapshot, Origin, PushInputs, decode};

    fn config(kind: &str, spec: Value) -> Arc<Config> {
        let group = if kind == "PeerAuthentication" { "security" } else { "networking" };
        let document = json!({
            "apiVersion": format!("{group}.istio.io/v1"), "kind": kind,
            "metadata": {"name": "n", "namespace": "x"}, "spec": spec,
        });
        Arc::new(decode::from_value(&document, Origin::default()).expect("an object"))
    }

    fn node(kind: &str, ip: &str, hash: &str) -> Node {
        let metadata = json!({"LABELS": {
            "app": "a", "version": "v1", "pod-template-hash": hash, "zone": "z", "istio": "gw",
            "topology.kubernetes.io/region": "r", "service.istio.io/canonical-name": "a",
        }, "NODE_NAME": hash});
        Node::from_parts(&format!("{kind}~{ip}~p.x~x.svc.cluster.local"), metadata, Locality::default())
            .expect("a node")
    }

    fn context() -> PushContext {
        let priority = json!({"loadBalancer": {"localityLbSetting": {"failoverPriority": ["zone=z"]}}});
        let configs = ConfigSnapshot::of([
            config(
                "VirtualService",
                json!({"hosts": ["h"], "http": [{"match": [{"sourceLabels": {"version": "v1"}}]}]}),
            ),
            config("DestinationRule", json!({"host": "h", "trafficPolicy": priority})),
            config("PeerAuthentication", json!({"selector": {"matchLabels": {"app": "b"}}})),
            config("Gateway", json!({"selector": {"istio": "gw"}})),
        ]);
        PushContext::build(PushInputs { configs, ..PushInputs::default() })
    }

    #[test]
    fn a_label_gives_the_whole_locality_where_no_topology_label_does() {
        let of = |labels: Value| {
            let metadata = json!({"LABELS": labels});
            let sent = Locality::parse("sent/by/envoy");
            let node = Node::from_parts("sidecar~10.0.0.1~p.x~x.svc.cluster.local", metadata, sent).expect("a node");
            context().view_of(&node).locality
        };
        assert_eq!(of(json!({})), Locality::parse("sent/by/envoy"));
        assert_eq!(of(json!({"istio-locality": "a.b.c"})), Locality::parse("a/b/c"));
        let both = json!({"istio-locality": "a.b.c", "topology.istio.io/locality": "d.e.f"});
        assert_eq!(of(both.clone()), Locality::parse("d/e/f"));
        let mut all = both;
        all["topology.kubernetes.io/region"] = json!("r");
        assert_eq!(of(all), Locality::parse("r"));
        let emptied = json!({"istio-locality": "a.b.c", "topology.istio.io/locality": ""});
        assert_eq!(of(emptied), Locality::parse("sent/by/envoy"));
    }

    fn keys(view: &ProxyView) -> Vec<&str> {
        view.labels.keys().map(String::as_str).collect()
    }

    #[test]
    fn only_labels_that_something_reads_are_kept() {
        let context = context();
        let view = context.view_of(&node("sidecar", "10.0.0.1", "one"));
        let traced = "service.istio.io/canonical-name";
        assert_eq!(keys(&view), ["app", traced, "version", "zone"]);
        assert_eq!(&*view.locality.region, "r");
        assert_eq!(keys(&context.outbound_view(&view)), [traced, "version", "zone"]);
        assert_eq!(keys(&context.routing_view(&view)), ["version", "zone"]);
        let router = context.view_of(&node("router", "10.0.0.1", "one"));
        assert_eq!(keys(&router), ["app", "istio", traced, "version", "zone"]);
    }

    #[test]
    fn replicas_share_a_view_and_its_key() {
        let context = context();
        let view = |ip, hash| context.view_of(&node("sidecar", ip, hash));
        let (one, two) = (view("10.0.0.1", "one"), view("10.0.0.2", "two"));
        assert_eq!(one, two);
        assert_eq!(one.key(), two.key());
        let other = ProxyView { namespace: "y".into(), ..one.clone() };
        assert_ne!(other.key(), one.key());
    }
}
