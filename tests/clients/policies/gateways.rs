//! Policies of a gateway: its own routes are chosen by claims, and refused requests reach no backend.

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

/// The address of a caller behind proxies that the gateway trusts is the one that the nearest of them saw.
#[test]
fn remote_addresses_are_those_that_a_trusted_proxy_tells() {
    let (echo, port) = (Echo::start("v1"), free_port());
    let selector = json!({"matchLabels": {"app": "edge"}});
    let rules = json!([{"from": [{"source": {"remoteIpBlocks": ["203.0.113.0/24"]}}]}]);
    let direct =
        json!([{"from": [{"source": {"ipBlocks": ["203.0.113.0/24"]}}], "to": [{"operation": {"paths": ["/near"]}}]}]);
    let routes = json!({"hosts": [HOST], "gateways": ["edge"], "http": [{"route": [{"destination": {"host": HOST}}]}]});
    let text = service(HOST, 80, "HTTP", &[(echo.port, "v1", "")])
        + &gateway(port)
        + &object("VirtualService", "web", &routes)
        + &authorization("allow", &json!({"selector": selector, "rules": rules}))
        + &authorization("deny", &json!({"selector": selector, "action": "DENY", "rules": direct}));
    let plane = ControlPlane::start(&[("edge.yaml", text)]);
    let of = |proxies: u32| {
        let metadata =
            json!({"LABELS": {"app": "edge"}, "PROXY_CONFIG": {"gatewayTopology": {"numTrustedProxies": proxies}}});
        Envoy::start(&plane, NODE, &metadata, false)
    };
    let rows = |envoy: &Envoy, rows: &[(u16, &[&str])]| {
        let ask = |told: &[&str]| {
            let headers: Vec<(&str, &str)> = told.iter().map(|told| ("x-forwarded-for", *told)).collect();
            get(port, HOST, "/near", &headers)
        };
        for (at, (status, told)) in rows.iter().enumerate() {
            wait_until("the gateway answers", || match ask(told) {
                Ok(answer) if answer.status == *status => Ok(()),
                // After the first one each answer counts.
                Ok(answer) if at > 0 => panic!("{told:?}: {}", answer.status),
                other => Err(format!("{other:?}")),
            });
        }
        envoy.assert_no_nacks();
    };
    let behind_one = of(1);
    rows(
        &behind_one,
        &[
            (200, &["203.0.113.7"]),
            (403, &[]),
            (403, &["198.51.100.9"]),
            (200, &["198.51.100.9, 203.0.113.7"]),
            // The caller wrote the first one itself.
            (403, &["203.0.113.7, 198.51.100.9"]),
            (403, &["203.0.113.7, 203.0.113.7, 198.51.100.9"]),
            (403, &["203.0.113.7, nonsense"]),
        ],
    );
    drop(behind_one);
    // A gateway that is reached by callers themselves believes none of it.
    rows(&of(0), &[(403, &["203.0.113.7"]), (403, &["203.0.113.7, 203.0.113.8"]), (403, &[])]);
}

#[test]
fn policies_hold_for_the_gateway_api_gateway_that_they_name() {
    let (echo, port) = (Echo::start("v1"), free_port());
    let api = "gateway.networking.k8s.io/v1";
    let of = |kind: &str, name: &str, spec: Value| {
        let object =
            json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": spec});
        format!("---\n{object}\n")
    };
    let reference = |name: &str, path: &str| {
        let target = json!([{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name}]);
        let rules = json!([{"to": [{"operation": {"paths": [path]}}]}]);
        authorization(name, &json!({"targetRefs": target, "action": "DENY", "rules": rules}))
    };
    let backend = json!({"group": "networking.istio.io", "kind": "Hostname", "name": HOST, "port": 80});
    let text = service(HOST, 80, "HTTP", &[(echo.port, "v1", "")])
        + &of(
            "Gateway",
            "edge",
            json!({"gatewayClassName": "istio", "listeners": [{"name": "http", "port": port, "protocol": "HTTP"}]}),
        )
        + &of(
            "HTTPRoute",
            "web",
            json!({"parentRefs": [{"name": "edge"}], "hostnames": [HOST], "rules": [{"backendRefs": [backend]}]}),
        )
        + &reference("edge", "/mine")
        + &reference("other", "/others");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "edge-istio", "namespace": "shop"},
        "spec": {"selector": {"app": "edge"}, "ports": [{"name": "http", "port": port}]}});
    let plane = ControlPlane::start(&[("edge.yaml", text + &format!("---\n{service}\n"))]);
    let labels = json!({"LABELS": {"app": "edge", "gateway.networking.k8s.io/gateway-name": "edge"}});
    let envoy = Envoy::start(&plane, NODE, &labels, false);
    wait_until("the gateway routes", || match get(port, HOST, "/others", &[]) {
        Ok(answer) if answer.status == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(get(port, HOST, "/mine", &[]).unwrap().status, 403);
    envoy.assert_no_nacks();
}
