//! Istio's logging scopes: each stands for the modules here that do the same work, and has a level that can be changed while the
//! process runs.
//!
//! A level belongs to a target, and the longest target that a line's module begins with decides. Levels that are set by scope
//! stand before those of the directives that the process was started with.

use std::{collections::BTreeMap, fmt::Write};

use tracing::level_filters::LevelFilter;

/// A scope: name, description, targets. The scope `default` has the empty target: all that is in no other scope.
const SCOPES: &[(&str, &str, &[&str])] = &[
    ("admin", "debug pages and metrics", &["pilothouse::admin"]),
    ("ads", "clients, pushes and their answers", &["pilothouse::discovery"]),
    ("adsc", "other control planes as sources", &["pilothouse::sources::xds"]),
    ("analysis", "analysis across objects", &["pilothouse::analysis"]),
    ("ca", "certificates that were issued", &["audit"]),
    ("default", "everything that is in no other scope", &[""]),
    ("delta", "the xDS protocol", &["pilothouse::xds"]),
    ("file", "folders as sources", &["pilothouse::sources::file"]),
    ("klog", "the library that speaks with Kubernetes", &["kube_client", "kube_runtime"]),
    ("kube", "clusters as sources", &["pilothouse::sources::kube"]),
    ("model", "indices of objects, and generation", &["pilothouse::push", "pilothouse::generate"]),
    ("monitoring", "logs, metrics, traces", &["pilothouse::telemetry"]),
    ("security", "identities and the certificate authority", &["pilothouse::identity"]),
    ("serviceentry", "the registry of services", &["pilothouse::registry"]),
    ("status", "statuses of objects", &["pilothouse::status"]),
    ("store", "the store of objects", &["pilothouse::store"]),
    ("wle", "registration of workloads", &["pilothouse::registration"]),
];

/// Stands for every scope at once.
const ALL: &str = "all";

/// Istio's scopes whose work has no lines of its own here.
const ELSEWHERE: &[&str] = &[
    "authn",
    "authorization",
    "cache",
    "citadelclient",
    "cli",
    "controllers",
    "controlleruntime",
    "deltaadsc",
    "dns",
    "dockerfile",
    "endpoint",
    "epp",
    "forwarder",
    "gateway",
    "gatewaycommon",
    "gcecred",
    "grpc",
    "grpcgen",
    "hbone",
    "healthcheck",
    "installer",
    "ip-autoallocate",
    "krt",
    "mockcred",
    "pkica",
    "pkira",
    "probes",
    "processing",
    "push",
    "retry",
    "rootcertrotator",
    "sds",
    "secretcontroller",
    "server",
    "serverca",
    "shell",
    "simulation",
    "spiffe",
    "tag-watcher",
    "tf",
    "tpath",
    "trustBundle",
    "untaint",
    "util",
    "validation",
    "validationController",
    "validationServer",
    "wasm",
    "xdsproxy",
];

/// The state of a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Istio's name.
    pub name: &'static str,
    /// The work that its lines are about.
    pub description: &'static str,
    /// The level in force, in Istio's words: `none`, `error`, `warn`, `info`, `debug`; also `trace`.
    pub level: &'static str,
}

/// A scope with its new level.
pub type ScopeLevel = (String, LevelFilter);

/// Reads `SCOPE:LEVEL`, or a level alone for the scope `default`, as Istio's `--log_output_level` has it.
///
/// # Errors
/// A text that names the unknown scope or level.
pub fn scope_level(text: &str) -> Result<ScopeLevel, String> {
    let (scope, level) = text.trim().split_once(':').unwrap_or(("default", text.trim()));
    let known = scope == ALL || ELSEWHERE.contains(&scope) || SCOPES.iter().any(|(name, ..)| *name == scope);
    if !known {
        let names: Vec<&str> = SCOPES.iter().map(|(name, ..)| *name).collect();
        return Err(format!("{scope:?} is not a scope ({}, or {ALL})", names.join(", ")));
    }
    let filter = match level {
        "none" | "fatal" => LevelFilter::OFF,
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => return Err(format!("{level:?} is not a level (none, fatal, error, warn, info, debug, trace)")),
    };
    Ok((scope.to_string(), filter))
}

const fn word(level: LevelFilter) -> &'static str {
    match level {
        LevelFilter::OFF => "none",
        LevelFilter::ERROR => "error",
        LevelFilter::WARN => "warn",
        LevelFilter::INFO => "info",
        LevelFilter::DEBUG => "debug",
        LevelFilter::TRACE => "trace",
    }
}

/// The levels of the log.
#[derive(Debug, Clone, Default)]
pub(super) struct Levels {
    /// The directives of the start.
    start: String,
    /// Levels by target that were set by scope.
    set: BTreeMap<&'static str, LevelFilter>,
    /// Those of the start.
    set_at_start: BTreeMap<&'static str, LevelFilter>,
}

impl Levels {
    /// The levels of a start with these directives.
    pub(super) fn of(start: &str) -> Self {
        Self { start: start.to_string(), ..Self::default() }
    }

    /// Takes the levels for those of the start.
    pub(super) fn begin(&mut self) {
        self.set_at_start.clone_from(&self.set);
    }

    /// Sets the level of a scope. False where none of its lines are written here.
    pub(super) fn set(&mut self, (scope, level): &ScopeLevel) -> bool {
        let targets =
            SCOPES.iter().filter(|(name, ..)| name == scope || scope == ALL).flat_map(|(.., targets)| *targets);
        let targets: Vec<&str> = targets.copied().collect();
        self.set.extend(targets.iter().map(|target| (*target, *level)));
        !targets.is_empty()
    }

    /// Takes back all levels that were set since the start.
    pub(super) fn reset(&mut self) {
        self.set.clone_from(&self.set_at_start);
    }

    /// All scopes, by name.
    pub(super) fn scopes(&self) -> Vec<Scope> {
        let scope = |(name, description, targets): &(&'static str, &'static str, &[&'static str])| {
            let level = targets.first().map_or(LevelFilter::OFF, |target| self.level(target));
            Scope { name, description, level: word(level) }
        };
        SCOPES.iter().map(scope).collect()
    }

    /// The level in force for a target: of the longest prefix, and what was set before what was given at the start.
    fn level(&self, target: &str) -> LevelFilter {
        let covers = |prefix: &str| {
            target
                .strip_prefix(prefix)
                .is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with("::"))
        };
        let given = self.start.split(',').map(str::trim).filter_map(|directive| {
            let (target, level) = directive.split_once('=').unwrap_or(("", directive));
            Some((target, level.parse().ok()?))
        });
        let set = self.set.iter().map(|(target, level)| (*target, *level));
        // Of equal lengths the last one counts.
        let found = given.chain(set).filter(|(prefix, _)| covers(prefix)).max_by_key(|(prefix, _)| prefix.len());
        found.map_or(LevelFilter::OFF, |(_, level)| level)
    }

    /// The directives of a filter.
    pub(super) fn directives(&self) -> String {
        let mut text = self.start.clone();
        for (target, level) in &self.set {
            let level = level.to_string();
            let _ = if target.is_empty() { write!(text, ",{level}") } else { write!(text, ",{target}={level}") };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_set_and_taken_back() {
        let mut levels = Levels::of("info,kube_client=off");
        let level = |levels: &Levels, name: &str| levels.scopes().iter().find(|s| s.name == name).unwrap().level;
        assert_eq!((level(&levels, "ads"), level(&levels, "klog")), ("info", "none"));
        assert!(levels.set(&scope_level("ads:debug").unwrap()));
        assert_eq!((level(&levels, "ads"), level(&levels, "model")), ("debug", "info"));
        assert_eq!(levels.directives(), "info,kube_client=off,pilothouse::discovery=debug");
        assert!(levels.set(&scope_level("warn").unwrap()));
        assert_eq!(
            (level(&levels, "default"), level(&levels, "model"), level(&levels, "ads")),
            ("warn", "warn", "debug")
        );
        assert!(levels.set(&scope_level("all:none").unwrap()));
        assert!(levels.scopes().iter().all(|scope| scope.level == "none"));
        assert!(!levels.set(&scope_level("krt:debug").unwrap()), "nothing to write");
        levels.reset();
        assert_eq!(levels.directives(), "info,kube_client=off");
    }

    #[test]
    fn unknown_scopes_and_levels_are_refused_by_name() {
        for (text, wanted) in
            [("adz:debug", "\"adz\" is not a scope"), ("ads:loud", "\"loud\" is not a level"), ("", "level")]
        {
            assert!(scope_level(text).unwrap_err().contains(wanted), "{text}");
        }
    }

    #[test]
    fn the_filter_takes_the_directives() {
        let mut levels = Levels::of("warn,pilothouse::sources=debug,a[span{x=1}]=debug");
        for (scope, ..) in SCOPES {
            assert!(levels.set(&(scope.to_string(), LevelFilter::TRACE)), "{scope}");
        }
        assert!(tracing_subscriber::EnvFilter::try_new(levels.directives()).is_ok());
    }
}
