//! The hosts of an egress listener: `namespace/host`, with `.` (own namespace), `*` (all) and `~` (not these).

use std::collections::{HashMap, HashSet};

use crate::model::host::{is_wildcard, matches, subset_of};

/// The namespace that stands for all.
const ALL: &str = "*";

/// Imported and excluded hosts of one namespace.
#[derive(Debug, Default)]
pub(super) struct NamespaceHosts {
    exact: HashSet<String>,
    /// Exact and wildcard hosts, as written.
    all: Vec<String>,
    excluded: Vec<String>,
}

impl NamespaceHosts {
    /// Whether an entry with `~` covers the host.
    pub(super) fn excludes(&self, host: &str) -> bool {
        self.excluded.iter().any(|excluded| subset_of(host, excluded))
    }

    /// Whether an entry covers the host.
    pub(super) fn imports(&self, host: &str) -> bool {
        self.matches(host, subset_of)
    }

    /// Whether an entry covers the host of a VirtualService. Except for routes of the Gateway API it is enough that the host
    /// covers the entry: importing `a.com` imports a VirtualService for `*.com`.
    pub(super) fn imports_route_host(&self, host: &str, gateway_semantics: bool) -> bool {
        self.matches(host, if gateway_semantics { subset_of } else { matches })
    }

    fn matches(&self, host: &str, covers: fn(&str, &str) -> bool) -> bool {
        if self.exact.contains(host) {
            return true;
        }
        let wildcard = is_wildcard(host);
        self.all.iter().any(|imported| (wildcard || is_wildcard(imported)) && covers(host, imported))
    }
}

/// All hosts of a listener.
#[derive(Debug, Default)]
pub(super) struct ImportedHosts {
    by_namespace: HashMap<String, NamespaceHosts>,
    /// Whether every import names its namespace and an exact host, so that services can be looked up instead of searched.
    pub(super) exact_only: bool,
}

impl ImportedHosts {
    /// Reads the entries; those that are not `namespace/host` are passed over (validation refuses them).
    pub(super) fn parse<'a>(entries: impl IntoIterator<Item = &'a str>, own_namespace: &str) -> Self {
        let mut hosts = Self { exact_only: true, ..Self::default() };
        for entry in entries {
            let Some((namespace, host)) = entry.split_once('/').filter(|(_, host)| !host.contains('/')) else {
                tracing::warn!(entry, "a Sidecar's egress host is not of the form namespace/host");
                continue;
            };
            let (namespace, excluded) = match namespace.strip_prefix('~') {
                Some("") => (ALL, true),
                Some(rest) => (rest, true),
                None => (namespace, false),
            };
            let namespace = if namespace == "." { own_namespace } else { namespace };
            let of_namespace = hosts.by_namespace.entry(namespace.to_string()).or_default();
            if excluded {
                of_namespace.excluded.push(host.to_string());
                continue;
            }
            if is_wildcard(host) {
                hosts.exact_only = false;
            } else {
                of_namespace.exact.insert(host.to_string());
            }
            hosts.exact_only &= namespace != ALL;
            of_namespace.all.push(host.to_string());
        }
        hosts
    }

    /// The entries for hosts of this namespace: its own, then those for all namespaces.
    pub(super) fn of(&self, namespace: &str) -> impl Iterator<Item = &NamespaceHosts> {
        let own = (namespace != ALL).then(|| self.by_namespace.get(namespace)).flatten();
        own.into_iter().chain(self.by_namespace.get(ALL))
    }

    /// Whether an entry with `~` excludes the host of this namespace.
    pub(super) fn excludes(&self, namespace: &str, host: &str) -> bool {
        self.of(namespace).any(|hosts| hosts.excludes(host))
    }

    /// `(namespace, host)` of all exact imports.
    pub(super) fn exact(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_namespace
            .iter()
            .flat_map(|(namespace, hosts)| hosts.exact.iter().map(move |host| (namespace.as_str(), host.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(entries: &[&str], namespace: &str, host: &str) -> bool {
        let hosts = ImportedHosts::parse(entries.iter().copied(), "own");
        !hosts.excludes(namespace, host) && hosts.of(namespace).any(|h| h.imports(host))
    }

    #[test]
    fn entries_of_every_form() {
        let cases: [(&[&str], &str, &str, bool); 9] = [
            (&["./*"], "own", "a.com", true),
            (&["./*"], "other", "a.com", false),
            (&["*/a.com"], "other", "a.com", true),
            (&["x/*.com"], "x", "a.com", true),
            (&["x/a.com"], "x", "*.com", false),
            (&["~/*"], "x", "a.com", false),
            (&["*/*", "~x/*.com"], "x", "a.com", false),
            (&["*/*", "~x/*.com"], "y", "a.com", true),
            (&["x/a/b"], "x", "a", false),
        ];
        for (entries, namespace, host, expected) in cases {
            assert_eq!(imports(entries, namespace, host), expected, "{entries:?} {namespace}/{host}");
        }
    }

    #[test]
    fn a_route_for_a_wildcard_is_imported_by_a_host_below_it() {
        let hosts = ImportedHosts::parse(["x/a.com"], "own");
        let of_x = hosts.of("x").next();
        assert_eq!(of_x.map(|h| h.imports_route_host("*.com", false)), Some(true));
        assert_eq!(of_x.map(|h| h.imports_route_host("*.com", true)), Some(false));
        assert!(hosts.exact_only && !ImportedHosts::parse(["*/a.com"], "own").exact_only);
    }
}
