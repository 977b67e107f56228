//! The clients: a gateway, sidecars whose addresses are endpoints, and a gRPC program.

use pilothouse::proto::{
    envoy::config::core::v3::{Locality, Node},
    json_to_struct,
};
use serde_json::{Value, json};

use crate::{
    objects::{APPS, HOSTS, NAMESPACES, PROXIES},
    proxy::Who,
};

fn node(kind: &str, ip: &str, name: &str, namespace: &str, metadata: &Value) -> Node {
    let mut metadata = metadata.clone();
    metadata["NAMESPACE"] = json!(namespace);
    metadata["CLUSTER_ID"] = json!("Kubernetes");
    Node {
        id: format!("{kind}~{ip}~{name}.{namespace}~{namespace}.svc.cluster.local"),
        metadata: json_to_struct(&metadata),
        locality: Some(Locality { region: "east".to_string(), zone: "z1".to_string(), ..Locality::default() }),
        ..Node::default()
    }
}

/// All of them.
pub fn all() -> Vec<Who> {
    let who = |name, node| Who { name, node, targets: Vec::new(), asks_dns: false };
    let targets = || {
        let services =
            NAMESPACES[..2].iter().flat_map(|ns| APPS.iter().map(move |app| format!("{app}.{ns}.svc.cluster.local")));
        let hosts = services.chain(HOSTS[..4].iter().map(ToString::to_string));
        let ports = |host: String| [format!("{host}:80"), format!("{host}:7070")];
        hosts.flat_map(ports).chain(["xds.istio.io/grpc/lds/inbound/0.0.0.0:8080".to_string()]).collect()
    };
    let [gateway, a, b, c, grpc] = PROXIES;
    vec![
        who("gateway", node("router", gateway, "p0", "istio-system", &json!({"LABELS": {"istio": "ingressgateway"}}))),
        who(
            "sidecar of shop",
            node(
                "sidecar",
                a,
                "p1",
                "shop",
                &json!({"LABELS": {"app": "a", "version": "v1"}, "ISTIO_VERSION": "1.27.0"}),
            ),
        ),
        Who {
            asks_dns: true,
            ..who(
                "sidecar of bank with DNS",
                node(
                    "sidecar",
                    b,
                    "p2",
                    "bank",
                    &json!({
                        "LABELS": {"app": "b"}, "DNS_CAPTURE": "true", "DNS_AUTO_ALLOCATE": "true", "ISTIO_VERSION": "1.27.0",
                    }),
                ),
            )
        },
        who("stock sidecar of lone", node("sidecar", c, "p3", "lone", &json!({"LABELS": {"app": "c"}}))),
        Who {
            targets: targets(),
            ..who(
                "gRPC program of shop",
                node("sidecar", grpc, "p9", "shop", &json!({"LABELS": {"app": "web"}, "GENERATOR": "grpc"})),
            )
        },
    ]
}
