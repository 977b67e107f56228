//! Rules about paths, methods, headers, hosts and addresses; actions; edits.

use serde_json::json;

use super::{Guarded, authorization};

#[test]
fn requests_are_allowed_by_path_method_header_and_address() {
    let allow = json!({"rules": [
        {"to": [{"operation": {"paths": ["/api/*"], "methods": ["GET"]}}],
         "when": [{"key": "request.headers[x-tenant]", "values": ["acme", "glob*"], "notValues": ["global-old"]}]},
        {"to": [{"operation": {"paths": ["/items/{*}/price", "/docs/{**}"], "notPaths": ["/docs/secret"]}}]},
        {"from": [{"source": {"ipBlocks": ["127.0.0.0/8"]}}], "to": [{"operation": {"paths": ["/near"]}}]},
        {"from": [{"source": {"notIpBlocks": ["127.0.0.0/8"]}}], "to": [{"operation": {"paths": ["/far"]}}]},
        {"from": [{"source": {"remoteIpBlocks": ["203.0.113.0/24"]}}], "to": [{"operation": {"paths": ["/remote"]}}]},
        {"from": [{"source": {"namespaces": ["shop"]}}], "to": [{"operation": {"paths": ["/mesh"]}}]},
    ]});
    let guarded = Guarded::start(&authorization("allow", &allow), &json!({}), "");
    let (acme, global, old, none) =
        (&[("x-tenant", "acme")][..], &[("x-tenant", "global")][..], &[("x-tenant", "global-old")][..], &[][..]);
    guarded.assert_all(&[
        (200, "GET", "/api/a", acme),
        (403, "GET", "/other", none),
        (200, "GET", "/api/a?x=/other", acme),
        (200, "GET", "/api/a", global),
        (403, "GET", "/api/a", old),
        (403, "GET", "/api/a", none),
        (403, "POST", "/api/a", acme),
        (200, "GET", "/items/7/price", none),
        (403, "GET", "/items/7/8/price", none),
        (200, "GET", "/docs/a/b/c", none),
        (403, "GET", "/docs/secret", none),
        (200, "GET", "/near", none),
        (403, "GET", "/far", none),
        (403, "GET", "/remote", none),
        // Over plain text no client has an identity.
        (403, "GET", "/mesh", none),
    ]);
    assert!(!guarded.echo.paths().contains(&"/other".to_string()), "a refused request does not reach the program");
}

#[test]
fn deny_wins_over_allow_and_a_dry_run_refuses_no_request() {
    let named = |name: &str, spec: serde_json::Value| authorization(name, &spec);
    let tried = json!({
        "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
        "metadata": {"name": "tried", "namespace": "shop", "annotations": {"istio.io/dry-run": "true"}},
        "spec": {"action": "DENY", "rules": [{"to": [{"operation": {"paths": ["/tried"]}}]}]},
    });
    let text = named("allow", json!({"rules": [{}]}))
        + &named(
            "deny",
            json!({"action": "DENY", "rules": [{"to": [{"operation": {"hosts": ["Bad.example", "*.bad.example"]}}]},
            {"to": [{"operation": {"paths": ["*/admin"], "notMethods": ["OPTIONS"]}}]}]}),
        )
        + &named("audit", json!({"action": "AUDIT", "rules": [{}]}))
        + &format!("---\n{tried}\n");
    let guarded = Guarded::start(&text, &json!({}), "");
    guarded.assert_all(&[
        (403, "GET", "/admin", &[]),
        (200, "GET", "/", &[]),
        (200, "OPTIONS", "/admin", &[]),
        (403, "GET", "/a/admin", &[]),
        (200, "GET", "/tried", &[]),
    ]);
    for (host, status) in [("bad.example", 403), ("x.BAD.example", 403), ("web.example", 200)] {
        assert_eq!(guarded.ask_as("GET", host, "/", &[]).unwrap().status, status, "{host}");
    }
}

#[test]
fn an_edit_of_a_policy_is_in_force_at_once_and_a_refused_one_changes_nothing() {
    let allow = |path: &str| authorization("allow", &json!({"rules": [{"to": [{"operation": {"paths": [path]}}]}]}));
    let guarded = Guarded::start(&allow("/a"), &json!({}), "");
    guarded.until(200, "/a", &[]);
    guarded.until(403, "/b", &[]);
    guarded.plane.write("policies.yaml", &allow("/b"));
    guarded.until(200, "/b", &[]);
    guarded.until(403, "/a", &[]);
    guarded.plane.write("policies.yaml", &allow("/{*}{*}"));
    guarded.plane.write(
        "further.yaml",
        &authorization("deny", &json!({"action": "DENY", "rules": [{"to": [{"operation": {"paths": ["/b/c"]}}]}]})),
    );
    guarded.until(403, "/a", &[]);
    guarded.until(200, "/b", &[]);
    // Nothing is allowed by a policy without rules, and everything without a policy.
    guarded.plane.write("policies.yaml", &authorization("allow", &json!({})));
    guarded.until(403, "/b", &[]);
    guarded.plane.write("policies.yaml", "");
    guarded.until(200, "/b", &[]);
    guarded.until(403, "/b/c", &[]);
    guarded.envoy.assert_no_nacks();
}

#[test]
fn policies_of_the_root_namespace_hold_in_every_namespace() {
    let of_root = |name: &str, app: &str, path: &str| {
        let spec = json!({"selector": {"matchLabels": {"app": app}}, "action": "DENY",
            "rules": [{"to": [{"operation": {"paths": [path]}}]}]});
        let mut object = json!({"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
            "metadata": {"name": name, "namespace": "istio-system"}, "spec": spec});
        if app.is_empty() {
            object["spec"].as_object_mut().unwrap().remove("selector");
        }
        format!("---\n{object}\n")
    };
    let text = of_root("all", "", "/all") + &of_root("web", "web", "/web") + &of_root("other", "other", "/other");
    let allow = authorization("allow", &json!({"rules": [{}]}));
    let guarded = Guarded::start(&(text + &allow), &json!({}), "");
    guarded.assert_all(&[(403, "GET", "/all", &[]), (403, "GET", "/web", &[]), (200, "GET", "/other", &[])]);
}
