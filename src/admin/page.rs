//! The index of debug pages, and their list.

use std::fmt::Write;

use serde_json::Value;

/// The debug pages: path and description.
pub(super) const DEBUG_PAGES: &[(&str, &str)] = &[
    ("analysisz", "what is wrong across objects, with the codes of `pilothouse analyze`"),
    ("adsz", "connected proxies and the resources that they watch; POST ?push=true sends everything again"),
    (
        "config_dump",
        "resources that one proxy was sent, as Envoy's config_dump; ?proxyID=NAME.NAMESPACE [&types=cds,lds] [&resource=NAME]",
    ),
    ("authorizationz", "AuthorizationPolicies by namespace"),
    ("cachez", "names of the generated resources that views hold, by type; [?sizes=true] their bytes"),
    ("clusterz", "the main cluster and remote ones: the Secret or file that names each, whether it has delivered"),
    ("configz", "all objects in force; [?kind=KIND]"),
    ("connections", "open connections"),
    (
        "describez",
        "one service or workload with the objects in force for it; ?service=NAME [&namespace=NAMESPACE] or ?proxy=NAME.NAMESPACE",
    ),
    ("ecdsz", "extensions that one proxy was sent; ?proxyID="),
    ("edsz", "endpoints that one proxy was sent; ?proxyID="),
    ("endpointShardz", "endpoints by service and by the registry that reported them"),
    ("eventz", "the last pushes: their triggers, the proxies that they reached, their duration"),
    ("flagz", "the version, the flags and the environment of the process"),
    ("instancesz", "for each proxy the services that it is behind"),
    (
        "leaderz",
        "the leader, which writes statuses, the number written here, the last refusal; null where none are written",
    ),
    ("loadz", "requests by cluster, as clients reported them over LRS"),
    ("mcsz", "services of the Multi-Cluster Services API; always none: ServiceExports and ServiceImports are not read"),
    ("mesh", "mesh settings in force"),
    ("ndsz", "name table that one proxy was sent; ?proxyID="),
    ("networkz", "gateways between networks"),
    ("pprof", "why there are no profiles in this form, and the ways to one"),
    ("pushcontext", "policies and gateways between networks of the context in force"),
    ("push_status", "listeners and secrets that were left out, and the last refusal of each proxy"),
    ("queuez", "every actor: waiting messages, time since it last worked, restarts"),
    ("registryz", "all services"),
    ("resourcesz", "the kinds that are read"),
    ("shadowz", "objects that another source hides"),
    ("sidecarz", "services, rules and routes that one proxy's outbound traffic knows; ?proxyID="),
    ("sourcez", "every source: state, age, last error, refused documents with place and reason, deletions held back"),
    (
        "statusz",
        "the status of every object: its translation, its parts without effect, the proxies that hold it, its addresses",
    ),
    ("syncz", "versions that each proxy was sent and has accepted"),
    ("telemetryz", "Telemetries by namespace"),
    ("viewz", "views that proxies share, and how much was built for them"),
];

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #d8dee4;vertical-align:top}\
.bad{color:#b42318}.good{color:#1a7f37}code{background:#f2f4f7;padding:.1rem .3rem;border-radius:3px}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn frame(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\
         <body>{body}</body></html>"
    )
}

/// The paths of all debug pages.
pub(super) fn paths() -> Value {
    DEBUG_PAGES.iter().map(|(path, _)| format!("/debug/{path}")).collect()
}

/// The index of debug pages.
pub(super) fn index() -> String {
    let mut body = "<h1>Debug pages</h1><p><a href=\"/\">Dashboard</a></p><table>".to_string();
    for (path, shows) in DEBUG_PAGES {
        let _ = write!(body, "<tr><td><a href=\"/debug/{path}\">{path}</a></td><td>{}</td></tr>", escape(shows));
    }
    frame("pilothouse debug", &(body + "</table>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_text_ends_neither_an_element_nor_an_attribute() {
        assert_eq!(escape(r#"<a href="x">&lt;"#), "&lt;a href=&quot;x&quot;&gt;&amp;lt;");
        assert_eq!(escape("plain é"), "plain é");
    }

    #[test]
    fn the_index_links_every_page_once() {
        let index = index();
        for (path, shows) in DEBUG_PAGES {
            assert_eq!(index.matches(&format!("href=\"/debug/{path}\"")).count(), 1, "{path}");
            assert!(index.contains(&escape(shows)), "{path}");
        }
    }
}
