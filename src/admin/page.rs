//! The HTML pages: the overview on `/` and the index of debug pages.

use std::fmt::Write;

use super::{AdminState, registry};
use crate::xds::ResourceType;

/// The debug pages: path and description.
pub(super) const DEBUG_PAGES: &[(&str, &str)] = &[
    ("analysisz", "what is wrong across objects, with the codes of `pilothouse analyze`"),
    ("adsz", "connected proxies and the resources that they watch; POST ?push=true sends everything again"),
    (
        "config_dump",
        "resources that one proxy was sent, as Envoy's config_dump; ?proxyID=NAME.NAMESPACE [&types=cds,lds] [&resource=NAME]",
    ),
    ("authorizationz", "AuthorizationPolicies by namespace"),
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
    ("mesh", "mesh settings in force"),
    ("ndsz", "name table that one proxy was sent; ?proxyID="),
    ("networkz", "gateways between networks"),
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

/// The index of debug pages.
pub(super) fn index() -> String {
    let mut body = "<h1>Debug pages</h1><p><a href=\"/\">Overview</a></p><table>".to_string();
    for (path, shows) in DEBUG_PAGES {
        let _ = write!(body, "<tr><td><a href=\"/debug/{path}\">{path}</a></td><td>{}</td></tr>", escape(shows));
    }
    frame("pilothouse debug", &(body + "</table>"))
}

/// The overview.
pub(super) fn overview(state: &AdminState) -> String {
    let mut body = "<h1>pilothouse</h1>".to_string();
    let waiting = state.readiness.waiting_for();
    let _ = if state.is_ready() {
        write!(body, "<p class=\"good\">Ready.</p>")
    } else {
        write!(body, "<p class=\"bad\">Not ready; waiting for: {}</p>", escape(&waiting.join(", ")))
    };
    if let Some(context) = state.context() {
        let objects: usize = state.store.snapshot().by_kind.values().map(|l| l.len()).sum();
        let services = context.inputs.registry.services.len();
        let _ = write!(
            body,
            "<p>{objects} <a href=\"/debug/configz\">objects</a>, {services} <a href=\"/debug/registryz\">services</a>, \
             {} <a href=\"/debug/viewz\">views</a>. All <a href=\"/debug\">debug pages</a>, <a href=\"/metrics\">metrics</a>.</p>",
            state.xds.views().len()
        );
    }
    sources(state, &mut body);
    proxies(state, &mut body);
    pushes(state, &mut body);
    frame("pilothouse", &body)
}

fn sources(state: &AdminState, body: &mut String) {
    body.push_str(
        "<h2>Sources</h2><table><tr><th>source</th><th>state</th><th>objects</th><th>refused</th><th>error</th></tr>",
    );
    let (mut refused, mut held) = (Vec::new(), String::new());
    for source in state.sources.all().iter() {
        let report = source.board.read();
        let _ = write!(
            body,
            "<tr><td>{}</td><td>{:?}</td><td>{}</td><td>{}</td><td class=\"bad\">{}</td></tr>",
            escape(&report.source),
            report.state,
            report.objects,
            report.findings.count_refused(),
            escape(&report.last_error)
        );
        if !report.held_deletions.is_empty() {
            let _ = write!(
                held,
                "<p class=\"bad\">{} holds the deletion of {} objects back. <code>{}</code> lets it through.</p>",
                escape(&report.source),
                report.held_deletions.len(),
                escape(&registry::how_to_confirm(&report.source))
            );
        }
        refused.extend(report.findings.refused.iter().take(100).cloned());
    }
    body.push_str("</table>");
    body.push_str(&held);
    if !refused.is_empty() {
        body.push_str("<h2>Refused documents</h2><ul>");
        for document in refused.iter().take(100) {
            let _ = write!(body, "<li class=\"bad\">{}</li>", escape(&document.to_string()));
        }
        body.push_str("</ul>");
    }
}

fn proxies(state: &AdminState, body: &mut String) {
    let connections = state.xds.connections();
    let _ = write!(body, "<h2>Proxies ({})</h2>", connections.len());
    if connections.is_empty() {
        body.push_str("<p>None. Start one with <code>pilothouse bootstrap envoy --help</code>.</p>");
        return;
    }
    body.push_str("<table><tr><th>proxy</th><th>address</th>");
    let shown = [ResourceType::Cluster, ResourceType::Endpoint, ResourceType::Listener, ResourceType::Route];
    for kind in shown {
        let _ = write!(body, "<th>{}</th>", kind.label());
    }
    body.push_str("</tr>");
    for c in connections.iter().take(500) {
        let peer = c.peer.map(|p| p.to_string()).unwrap_or_default();
        let id = escape(&c.id);
        let _ =
            write!(body, "<tr><td><a href=\"/debug/config_dump?proxyID={id}\">{id}</a></td><td>{}</td>", escape(&peer));
        for kind in shown {
            let status = c.status(kind);
            let (class, text) = match () {
                () if !status.last_error.is_empty() => ("bad", status.last_error.as_str()),
                () if status.sent_nonce.is_empty() => ("", "not sent"),
                () if status.sent_nonce == status.acked_nonce => ("good", "synced"),
                () => ("", "waiting"),
            };
            let _ = write!(body, "<td class=\"{class}\">{}</td>", escape(text));
        }
        body.push_str("</tr>");
    }
    body.push_str("</table>");
}

fn pushes(state: &AdminState, body: &mut String) {
    body.push_str("<h2>Last pushes</h2><table><tr><th>#</th><th>why</th><th>objects</th><th>proxies</th><th>bytes</th><th>last ACK</th></tr>");
    for event in state.xds.events().iter().take(20) {
        let reasons: Vec<String> = event.reasons.iter().map(|(why, n)| format!("{why} ({n})")).collect();
        let objects = if event.forced { "everything".to_string() } else { event.keys.join(", ") };
        let _ = write!(
            body,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1} ms</td></tr>",
            event.version,
            escape(&reasons.join(", ")),
            escape(&objects),
            event.connections,
            event.bytes,
            event.last_ack_ms
        );
    }
    body.push_str("</table>");
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
