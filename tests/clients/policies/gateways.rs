//! Policies of a gateway: its own routes are chosen by claims, and refused requests reach nobody.

use serde_json::{Value, json};

use super::{authorization, policy, tokens::Issuer};
use crate::{
    config::{gateway, object, service, subsets, to},
    http::{Answer, Echo, get},
    mesh::{ControlPlane, Envoy},
    process::{free_port, wait_until},
};

const NODE: &str = "router~127.0.0.1~edge.shop~shop.svc.cluster.local";
const HOST: &str = "web.example";

#[test]
fn claims_choose_routes_and_policies_refuse_requests() {
    let (v1, v2, port, issuer) = (Echo::start("v1"), Echo::start("v2"), free_port(), Issuer::new("id.test"));
    let routes = json!({"hosts": [HOST], "gateways": ["edge"], "http": [
        {"match": [{"headers": {"@request.auth.claims.group": {"exact": "admin"}}}], "route": [to(HOST, "v2")]},
        {"route": [to(HOST, "v1")]},
    ]});
    let selector = |mut spec: Value| {
        spec["selector"] = json!({"matchLabels": {"app": "edge"}});
        spec
    };
    let tokens = json!({"jwtRules": [{"issuer": "id.test", "jwks": issuer.keys()}]});
    let deny = json!({"action": "DENY", "rules": [
        {"to": [{"operation": {"paths": ["/internal", "/internal/*"]}}]},
        {"to": [{"operation": {"methods": ["GET"], "paths": ["/mine"]}}],
         "from": [{"source": {"notRequestPrincipals": ["id.test/*"]}}]},
        {"to": [{"operation": {"paths": ["/office"]}}], "from": [{"source": {"notRemoteIpBlocks": ["127.0.0.0/8"]}}]},
        {"to": [{"operation": {"paths": ["/abroad"]}}], "from": [{"source": {"remoteIpBlocks": ["127.0.0.0/8"]}}]},
    ]});
    let others = authorization("others", &json!({"selector": {"matchLabels": {"app": "other"}}, "rules": []}));
    let text = service(HOST, 80, "HTTP", &[(v1.port, "v1", ""), (v2.port, "v2", "")])
        + &subsets(HOST)
        + &gateway(port)
        + &object("VirtualService", "web", &routes)
        + &policy("RequestAuthentication", "tokens", &selector(tokens))
        + &authorization("deny", &selector(deny))
        + &others;
    let plane = ControlPlane::start(&[("edge.yaml", text)]);
    let envoy = Envoy::start(&plane, NODE, &json!({"LABELS": {"app": "edge"}}), false);
    let ask = |path: &str, token: Option<&str>| -> std::io::Result<Answer> {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<(&str, &str)> = bearer.iter().map(|b| ("authorization", b.as_str())).collect();
        get(port, HOST, path, &headers)
    };
    wait_until("the gateway refuses", || match ask("/internal/x", None) {
        Ok(answer) if answer.status == 403 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let (admin, guest) = (issuer.token(&json!({"group": "admin"})), issuer.token(&json!({"group": "guest"})));
    let name = |token: Option<&str>| ask("/", token).unwrap().seen("name");
    assert_eq!((name(Some(&admin)), name(Some(&guest)), name(None)), ("v2".into(), "v1".into(), "v1".into()));
    let foreign = Issuer::new("id.test").token(&json!({"group": "admin"}));
    let rows = [
        ("/", Some(foreign.as_str()), 401),
        ("/internal", Some(&admin), 403),
        ("/mine", Some(&guest), 200),
        ("/mine", None, 403),
        ("/office", None, 200),
        ("/abroad", None, 403),
    ];
    for (path, token, status) in rows {
        assert_eq!(ask(path, token).unwrap().status, status, "{path}");
    }
    assert!(!v1.paths().iter().any(|path| path.starts_with("/internal")));
    envoy.assert_no_nacks();
}
