//! A path written in another way is the same path, as far as the mesh's normalization says.
//!
//! The statuses are those that Istio documents for `pathNormalization`: as written, by RFC 3986, with slashes merged, with
//! escaped slashes decoded before. No option decodes twice, drops `;` parameters, reads overlong UTF-8 or folds letters.

use serde_json::json;

use super::{Guarded, authorization};

/// The options of the mesh; `DEFAULT` stands for `BASE`.
const OPTIONS: [&str; 4] = ["NONE", "BASE", "MERGE_SLASHES", "DECODE_AND_MERGE_SLASHES"];

/// Paths with their statuses under each option, while `/admin` and everything below is denied.
const DENIED: &[(&str, [u16; 4])] = &[
    ("/admin", [403; 4]),
    ("/other", [200; 4]),
    // Dots, also escaped ones in either case of letters.
    ("/x/../admin", [200, 403, 403, 403]),
    ("/./admin", [200, 403, 403, 403]),
    ("/x/%2e%2e/admin", [200, 403, 403, 403]),
    ("/x/%2E%2E/admin", [200, 403, 403, 403]),
    ("/x/.%2e/admin", [200, 403, 403, 403]),
    ("/x/%2E./admin", [200, 403, 403, 403]),
    ("/%2e/admin", [200, 403, 403, 403]),
    ("/admin/.", [403; 4]),
    ("/admin/../x", [403, 200, 200, 200]),
    // Escaped letters; letters count as they are.
    ("/%61dmin", [200, 403, 403, 403]),
    ("/%61%64%6D%69%6e", [200, 403, 403, 403]),
    ("/ADMIN", [200; 4]),
    // Escaped twice.
    ("/x/%252e%252e/admin", [200; 4]),
    ("/x/%252E%252E/admin", [200; 4]),
    ("/x%252f..%252fadmin", [200; 4]),
    ("/admin%252fx", [200; 4]),
    ("/%2561dmin", [200; 4]),
    // Slashes: at the end, several, escaped in either case of letters.
    ("/admin/", [403; 4]),
    ("/admin//", [403; 4]),
    ("//admin", [200, 200, 403, 403]),
    ("///admin", [200, 200, 403, 403]),
    ("/x//../admin", [200; 4]),
    ("/admin%2fx", [200, 200, 200, 403]),
    ("/admin%2Fx", [200, 200, 200, 403]),
    ("/%2fadmin", [200, 200, 200, 403]),
    ("/x%2f..%2fadmin", [200, 200, 200, 403]),
    ("/x%2F..%2Fadmin", [200, 200, 200, 403]),
    ("/x%2f%2e%2e%2fadmin", [200, 200, 200, 403]),
    // Backslashes.
    ("/x/..\\admin", [200, 403, 403, 403]),
    ("/x\\..\\admin", [200, 403, 403, 403]),
    ("/\\admin", [200, 200, 403, 403]),
    ("/admin\\x", [200, 403, 403, 403]),
    ("\\admin", [400; 4]),
    ("/x/..%5cadmin", [200, 200, 200, 403]),
    ("/x%5C..%5Cadmin", [200, 200, 200, 403]),
    ("/x%2f..%5cadmin", [200, 200, 200, 403]),
    // Parameters of segments are a part of them, but for those of dots.
    ("/admin;x=1", [200; 4]),
    ("/admin;/x", [200; 4]),
    ("/admin/;x", [403; 4]),
    ("/x;/../admin", [200, 403, 403, 403]),
    ("/x/..;/admin", [200, 403, 403, 403]),
    // NUL and other control characters, raw and escaped.
    ("/admin%00", [200, 400, 400, 400]),
    ("/admin%00/x", [200, 400, 400, 400]),
    ("/admin\0", [400; 4]),
    ("/admin%0a", [200; 4]),
    ("/admin%20", [200; 4]),
    // Overlong UTF-8 of `.` and `/`, wide letters, `%u`, escapes that are none.
    ("/x/%c0%ae%c0%ae/admin", [200; 4]),
    ("/x%c0%af..%c0%afadmin", [200; 4]),
    ("/x/%e0%80%ae%e0%80%ae/admin", [200; 4]),
    ("/x/%ef%bc%8e%ef%bc%8e/admin", [200; 4]),
    ("/x/%u002e%u002e/admin", [200; 4]),
    ("/x/%2/admin", [200; 4]),
    // Queries and fragments are no part of the path, unless they are escaped.
    ("/admin?x", [403; 4]),
    ("/admin?", [403; 4]),
    ("/admin#x", [403; 4]),
    ("/admin%3fx", [200; 4]),
    ("/admin%23x", [200; 4]),
    // Whole URLs.
    ("http://web.example/admin", [403; 4]),
    ("http://web.example/x/%2e%2e/admin", [200, 403, 403, 403]),
];

/// Paths with their statuses under each option, while `/public/*` alone is allowed.
const ALLOWED: &[(&str, [u16; 4])] = &[
    ("/public/x", [200; 4]),
    ("/secret", [403; 4]),
    ("/public/../secret", [200, 403, 403, 403]),
    ("/public/%2e%2e/secret", [200, 403, 403, 403]),
    ("/public/%2E%2E/secret", [200, 403, 403, 403]),
    ("/public/..\\secret", [200, 403, 403, 403]),
    ("/public/..%2fsecret", [200, 200, 200, 403]),
    ("/public%2f..%2fsecret", [403; 4]),
    ("/public/%252e%252e/secret", [200; 4]),
    ("/public/..;/secret", [200, 403, 403, 403]),
    ("/%70ublic/x", [403, 200, 200, 200]),
    ("//public/x", [403, 403, 200, 200]),
];

/// Whether the workload would take a path for a denied one.
fn is_denied(path: &str) -> bool {
    path == "/admin" || path.starts_with("/admin/")
}

/// Asks for all paths while the mesh has an option, which stands in this column of the tables.
fn statuses(normalization: &str, column: usize) {
    let deny = json!({"action": "DENY", "rules": [{"to": [{"operation": {"paths": ["/admin", "/admin/*"]}}]}]});
    let allow = json!({"rules": [
        {"to": [{"operation": {"hosts": ["web.example"]}}]},
        {"to": [{"operation": {"hosts": ["public.example"], "paths": ["/public/*"]}}]},
    ]});
    let mesh = json!({"pathNormalization": {"normalization": normalization}});
    let guarded = Guarded::start(&(authorization("deny", &deny) + &authorization("allow", &allow)), &mesh, "");
    guarded.until(403, "/admin", &[]);
    let mut wrong = Vec::new();
    for (host, rows) in [("web.example", DENIED), ("public.example", ALLOWED)] {
        for (path, statuses) in rows {
            let answer = guarded.ask_as("GET", host, path, &[]).unwrap();
            let seen = answer.seen("path");
            if answer.status != statuses[column] || is_denied(&seen) {
                wrong.push(format!("{path:?}: {} instead of {}, forwarded {seen:?}", answer.status, statuses[column]));
            }
        }
    }
    assert!(wrong.is_empty(), "{normalization}:\n{}", wrong.join("\n"));
    guarded.envoy.assert_no_nacks();
}

#[test]
fn paths_are_taken_as_written_where_the_mesh_says_so() {
    statuses(OPTIONS[0], 0);
}

#[test]
fn dots_and_backslashes_do_not_lead_around_a_rule() {
    statuses(OPTIONS[1], 1);
    statuses("DEFAULT", 1);
}

#[test]
fn slashes_are_merged_where_the_mesh_says_so() {
    statuses(OPTIONS[2], 2);
}

#[test]
fn escaped_slashes_are_decoded_where_the_mesh_says_so() {
    statuses(OPTIONS[3], 3);
}
