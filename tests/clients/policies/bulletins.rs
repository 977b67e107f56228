//! The classes of Istio's security bulletins that are about traffic, each with a real Envoy. Encodings of paths are in
//! `encodings`, names in regular expressions in `crate::roots`.

use serde_json::{Value, json};

use super::{
    Guarded, NODE, authorization, policy,
    tokens::{Issuer, bearer},
};
use crate::{http::get, mesh::Envoy, process::wait_until};

/// CVE-2026-31837: keys that cannot be fetched were replaced by a pair whose private half is public.
#[test]
fn cve_2026_31837_without_keys_no_token_is_valid() {
    let issuer = Issuer::new("id.test");
    let rule = json!({"issuer": "id.test", "jwksUri": "http://127.0.0.1:1/keys"});
    let allow = json!({"rules": [{"from": [{"source": {"requestPrincipals": ["*"]}}]}]});
    let text = policy("RequestAuthentication", "tokens", &json!({"jwtRules": [rule]})) + &authorization("a", &allow);
    let guarded = Guarded::start(&text, &json!({}), "");
    let signed = bearer(&issuer.token(&json!({})));
    // {"alg":"none"}
    let claims = signed.split('.').nth(1).unwrap();
    let unsigned = format!("Bearer eyJhbGciOiJub25lIn0.{claims}.");
    guarded.assert_all(&[
        (401, "GET", "/", &[("authorization", &signed)]),
        (401, "GET", "/", &[("authorization", &unsigned)]),
        (403, "GET", "/", &[]),
    ]);
}

/// CVE-2022-21679: policies in a form that older proxies read otherwise.
#[test]
fn cve_2022_21679_policies_hold_in_the_oldest_supported_envoy() {
    let rules = json!({"rules": [
        {"to": [{"operation": {"paths": ["/a", "/b/*"], "methods": ["GET"], "hosts": ["web.example"]}}]},
        {"to": [{"operation": {"paths": ["/team/{*}/items/{**}"]}}], "when": [{"key": "request.headers[x-a]", "values": ["v*"]}]},
    ]});
    let deny = json!({"action": "DENY", "rules": [{"to": [{"operation": {"paths": ["/b/c"]}}]}]});
    let mut guarded = Guarded::start(&(authorization("allow", &rules) + &authorization("deny", &deny)), &json!({}), "");
    let metadata = json!({"INTERCEPTION_MODE": "NONE", "LABELS": {"app": "web"}});
    guarded.envoy = Envoy::oldest(guarded.plane.grpc_port, NODE, &metadata, true);
    guarded.assert_all(&[
        (200, "GET", "/a", &[]),
        (403, "POST", "/a", &[]),
        (200, "GET", "/b/d", &[]),
        (403, "GET", "/b/c", &[]),
        (403, "GET", "/x/../b/c", &[]),
        (403, "GET", "/team/red/items/1/2", &[]),
        (200, "GET", "/team/red/items/1/2", &[("x-a", "v1")]),
        (403, "GET", "/team/red/blue/items/1", &[("x-a", "v1")]),
        (403, "GET", "/", &[]),
    ]);
}

/// ISTIO-SECURITY-2021-004: fields that need mutual TLS, on plain text.
#[test]
fn istio_security_2021_004_an_identity_is_never_found_in_plain_text() {
    let from = |source: Value| json!({"rules": [{"from": [{"source": source}]}]});
    let guarded = Guarded::start("", &json!({}), "");
    guarded.until(200, "/", &[]);
    for (n, source) in [
        json!({"principals": ["*"]}),
        json!({"namespaces": ["*"]}),
        json!({"namespaces": ["shop"]}),
        json!({"serviceAccounts": ["shop/client"]}),
    ]
    .into_iter()
    .enumerate()
    {
        guarded.plane.write("policies.yaml", "");
        guarded.until(200, "/", &[]);
        guarded.plane.write("policies.yaml", &authorization(&format!("allow-{n}"), &from(source.clone())));
        guarded.until(403, "/", &[]);
        let claimed = [("x-forwarded-client-cert", "By=a;URI=spiffe://cluster.local/ns/shop/sa/client")];
        assert_eq!(guarded.ask("GET", "/", &claimed).unwrap().status, 403, "{source}");
    }
    guarded.envoy.assert_no_nacks();
}

/// A policy that Envoy would not take closes its workload: left out alone, it would open it.
#[test]
fn policies_that_envoy_would_refuse_refuse_every_request_and_are_told() {
    let guarded = Guarded::start("", &json!({}), "");
    let tokens = json!({"jwtRules": [{"issuer": "a", "jwks": "{\"keys\":[]}", "fromHeaders": [{"name": "a", "prefix": "x\ny"}]}]});
    // An expression of more than Envoy's limit.
    let source = json!({"namespaces": ["a".repeat(40_000) + "*b*c*d"]});
    let rules = json!([{"from": [{"source": source}]}]);
    for (kind, name, spec) in [
        ("RequestAuthentication", "tokens", tokens),
        ("AuthorizationPolicy", "allow", json!({"rules": rules})),
        ("AuthorizationPolicy", "deny", json!({"action": "DENY", "rules": rules})),
        ("AuthorizationPolicy", "audit", json!({"action": "AUDIT", "rules": rules})),
    ] {
        guarded.plane.write("policies.yaml", "");
        guarded.until(200, "/", &[]);
        guarded.plane.write("policies.yaml", &policy(kind, name, &spec));
        guarded.until(403, "/", &[]);
        let told = format!("{kind}/shop/{name}");
        wait_until(&told, || {
            let page = guarded.plane.debug("/debug/push_status").to_string();
            if page.contains(&told) && page.contains("refuse every request") { Ok(()) } else { Err(page) }
        });
        let page = get(guarded.plane.http_port, "localhost", "/debug/statusz", &[]).unwrap().body;
        assert!(page.contains("RefusedByProxies") && page.contains("refuse every request"), "{page}");
    }
    guarded.envoy.assert_no_nacks();
}

/// Values at the edge of the valid ones: each policy is either refused when it is read, or closes its workload.
#[test]
fn policies_with_odd_values_never_let_more_in() {
    let guarded = Guarded::start("", &json!({}), "");
    let odd = ["a\nb", "a b", "\u{7f}", "ü", "*a*", "", "a".repeat(70_000).as_str(), "%00", "{*}", "/{**}/{*}"]
        .map(String::from);
    for value in &odd {
        let specs = [
            json!({"to": [{"operation": {"paths": [value]}}]}),
            json!({"to": [{"operation": {"hosts": [value]}}]}),
            json!({"to": [{"operation": {"methods": [value]}}]}),
            json!({"from": [{"source": {"principals": [value]}}]}),
            json!({"from": [{"source": {"ipBlocks": [value]}}]}),
            json!({"from": [{"source": {"requestPrincipals": [value]}}]}),
            json!({"when": [{"key": "request.headers[x]", "values": [value]}]}),
            json!({"when": [{"key": format!("request.headers[{value}]"), "values": ["x"]}]}),
            json!({"when": [{"key": format!("request.auth.claims[{value}]"), "values": ["x"]}]}),
            json!({"when": [{"key": "connection.sni", "values": [value]}]}),
        ];
        // One that is refused when it is read takes no other along, and this one is denied by all of them.
        let never = json!({"rules": [{"to": [{"operation": {"paths": ["/never"]}}]}]});
        let each =
            specs.iter().enumerate().map(|(n, rule)| authorization(&format!("odd-{n}"), &json!({"rules": [rule]})));
        guarded.plane.write("policies.yaml", "");
        guarded.until(200, "/", &[]);
        guarded.plane.write("policies.yaml", &(authorization("never", &never) + &each.collect::<String>()));
        guarded.until(403, "/", &[]);
        for path in ["/", "/other", "/a/b"] {
            assert_eq!(guarded.ask("POST", path, &[("x", "y")]).unwrap().status, 403, "{value:?} {path}");
        }
        guarded.envoy.assert_no_nacks();
    }
}
