//! The secrets that each identity gets, and those that are never sent.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Secrets, secrets};
use crate::{
    model::{
        Config, ConfigSnapshot, Identity, Locality, Node, Origin, WorkloadCertificate, WorkloadCertificates, decode,
    },
    proto::envoy::{config::core::v3 as core, extensions::transport_sockets::tls::v3::secret::Type},
    push::{ProxyView, PushContext, context::PushInputs},
};

struct Pair {
    certificate: String,
    key: String,
}

fn pair() -> Pair {
    let made = rcgen::generate_simple_self_signed(["web.test".to_string()]).unwrap();
    Pair { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
}

fn object(kind: &str, namespace: &str, name: &str, data: &Value) -> Arc<Config> {
    let field = if kind == "Secret" { "stringData" } else { "data" };
    let document =
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, field: data});
    Arc::new(decode::from_value(&document, Origin::default()).unwrap())
}

fn gateway(credential: &str) -> Arc<Config> {
    let document = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "gw", "namespace": "edge"},
        "spec": {"servers": [{
            "port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "hosts": ["*"],
            "tls": {"mode": "MUTUAL", "credentialName": credential},
        }]},
    });
    Arc::new(decode::from_value(&document, Origin::default()).unwrap())
}

fn ask(objects: Vec<Arc<Config>>, names: &[&str], identity: Option<&str>) -> Secrets {
    let inputs = PushInputs { configs: ConfigSnapshot::of(objects), ..PushInputs::default() };
    let context = PushContext::build(inputs);
    let node =
        Node::from_parts("router~1.1.1.1~gw.edge~edge.svc.cluster.local", json!({}), Locality::default()).unwrap();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let identity = identity.and_then(Identity::parse);
    secrets(&context, &ProxyView::of_node(&node), &names, identity.as_ref())
}

const EDGE: Option<&str> = Some("spiffe://cluster.local/ns/edge/sa/gw");

fn names(secrets: &Secrets) -> Vec<&str> {
    secrets.resources.iter().map(|s| s.name.as_str()).collect()
}

#[test]
fn both_forms_of_keys_and_ca_beside_or_apart() {
    let Pair { certificate, key } = pair();
    let objects = vec![
        object("Secret", "edge", "tls", &json!({"tls.crt": certificate, "tls.key": key, "ca.crt": certificate})),
        object("Secret", "edge", "generic", &json!({"cert": certificate, "key": key})),
        object("Secret", "edge", "generic-cacert", &json!({"cacert": certificate})),
        object("ConfigMap", "other", "roots", &json!({"ca.crt": certificate})),
    ];
    let asked = [
        "kubernetes://tls",
        "kubernetes://tls-cacert",
        "kubernetes://generic",
        "kubernetes://generic-cacert",
        "configmap://other/roots",
    ];
    let sent = ask(objects, &asked, EDGE);
    assert_eq!(names(&sent), asked);
    let certificates = sent.resources.iter().filter(|s| matches!(s.r#type, Some(Type::TlsCertificate(_)))).count();
    assert_eq!(certificates, 2);
}

#[test]
fn nothing_leaves_its_namespace_or_goes_to_strangers() {
    let Pair { certificate, key } = pair();
    let objects = || vec![object("Secret", "edge", "tls", &json!({"tls.crt": certificate, "tls.key": key}))];
    for (name, identity, sent) in [
        ("kubernetes://edge/tls", EDGE, true),
        ("kubernetes://edge/tls", Some("spiffe://cluster.local/ns/other/sa/gw"), false),
        ("kubernetes://edge/tls", None, false),
        ("kubernetes-gateway://edge/tls", EDGE, false),
        ("invalid://", EDGE, false),
        ("anything", EDGE, false),
    ] {
        let answer = ask(objects(), &[name], identity);
        assert_eq!((answer.resources.len(), answer.refused.len()), (usize::from(sent), usize::from(!sent)), "{name}");
    }
}

#[test]
fn a_gateway_grants_the_secrets_that_it_refers_to() {
    let Pair { certificate, key } = pair();
    let name = "kubernetes-gateway://edge/tls";
    let objects =
        || vec![object("Secret", "edge", "tls", &json!({"tls.crt": certificate, "tls.key": key})), gateway(name)];
    assert_eq!(names(&ask(objects(), &[name], EDGE)), [name]);
    let stranger = Some("spiffe://cluster.local/ns/other/sa/gw");
    assert_eq!(names(&ask(objects(), &[name], stranger)), Vec::<&str>::new());
}

#[test]
fn material_that_cannot_work_is_named_and_not_sent() {
    let (one, two) = (pair(), pair());
    let broken = one.certificate.replace("MII", "AAA");
    for (data, reason) in [
        (json!({"tls.crt": one.certificate, "tls.key": two.key}), "does not belong"),
        (json!({"tls.crt": broken, "tls.key": one.key}), "not valid"),
        (json!({"tls.crt": "text", "tls.key": one.key}), "no certificate"),
        (json!({"tls.crt": one.certificate, "tls.key": one.certificate}), "no private key"),
        (json!({"tls.crt": one.certificate, "tls.key": ""}), "but empty"),
        (json!({"tls.crt": one.certificate}), "has neither"),
    ] {
        let answer = ask(vec![object("Secret", "edge", "tls", &data)], &["kubernetes://tls"], EDGE);
        assert_eq!(answer.resources, []);
        let said = &answer.refused[0].reason;
        assert!(said.contains(reason) && said.contains("edge/tls"), "{said:?} should say {reason:?}");
    }
}

#[test]
fn workload_certificates_go_to_clients_that_proved_their_identity_alone() {
    let identity = |account: &str| Identity::parse(&format!("spiffe://cluster.local/ns/shop/sa/{account}")).unwrap();
    let (one, two) = (identity("cart"), identity("ledger"));
    let certificate = |text: &'static str| {
        Arc::new(WorkloadCertificate { chain: text.as_bytes().into(), key: "key".as_bytes().into() })
    };
    let certificates = WorkloadCertificates {
        roots: "roots".as_bytes().into(),
        revoked: "revoked".as_bytes().into(),
        by_identity: [(one.clone(), certificate("one")), (two.clone(), certificate("two"))].into(),
    };
    let inputs = PushInputs { certificates: Arc::new(certificates), ..PushInputs::default() };
    let context = PushContext::build(inputs);
    let names = ["default", "ROOTCA"].map(String::from);
    let sent = |certified, identity: Option<&Identity>| {
        let node = Node::parse(&core::Node {
            id: "sidecar~10.0.0.1~a.shop~shop.svc.cluster.local".into(),
            ..core::Node::default()
        });
        let view = ProxyView { certified, ..ProxyView::of_node(&node.unwrap()) };
        format!("{:?}", secrets(&context, &view, &names, identity).resources)
    };
    let of_one = sent(true, Some(&one));
    assert!(
        of_one.contains("one") && of_one.contains("roots") && of_one.contains("revoked") && !of_one.contains("two"),
        "{of_one}"
    );
    assert!(sent(true, Some(&two)).contains("two"));
    let other = identity("other");
    for (certified, identity) in [(false, Some(&one)), (true, None), (true, Some(&other))] {
        assert_eq!(sent(certified, identity), "[]");
    }
}
