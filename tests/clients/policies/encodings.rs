//! A path written in another way is the same path, as far as the mesh's normalization says.

use serde_json::json;

use super::{Guarded, authorization};

/// The statuses of `paths` while `/admin` and everything below is denied.
fn statuses(normalization: &str, paths: &[(&str, u16)]) {
    let deny = json!({"action": "DENY", "rules": [{"to": [{"operation": {"paths": ["/admin", "/admin/*"]}}]}]});
    let mesh = json!({"pathNormalization": {"normalization": normalization}});
    let guarded = Guarded::start(&authorization("deny", &deny), &mesh, "");
    guarded.until(403, "/admin", &[]);
    for (path, status) in paths {
        assert_eq!(guarded.ask("GET", path, &[]).unwrap().status, *status, "{normalization} {path}");
    }
    guarded.envoy.assert_no_nacks();
}

#[test]
fn dots_and_backslashes_do_not_lead_around_a_rule() {
    let paths = [
        ("/x/../admin", 403),
        ("/./admin", 403),
        ("/x/%2e%2e/admin", 403),
        ("/x/..\\admin", 403),
        ("/%61dmin", 403),
        ("/admin?x", 403),
        ("/admin#x", 403),
        ("/other", 200),
    ];
    statuses("DEFAULT", &paths);
}

#[test]
fn paths_are_taken_as_written_where_the_mesh_says_so() {
    let paths = [("/x/../admin", 200), ("/./admin", 200), ("//admin", 200), ("/%61dmin", 200), ("/admin?x", 403)];
    statuses("NONE", &paths);
}

#[test]
fn slashes_are_merged_and_decoded_where_the_mesh_says_so() {
    statuses("BASE", &[("//admin", 200), ("/admin%2fx", 200)]);
    statuses("MERGE_SLASHES", &[("//admin", 403), ("/admin%2fx", 200)]);
    statuses("DECODE_AND_MERGE_SLASHES", &[("//admin", 403), ("/admin%2fx", 403), ("/x%2f..%5cadmin", 403)]);
}
