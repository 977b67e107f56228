//! Family `samples`: the sample files of an Istio release. Every Istio and Gateway API object in them is taken without an error.

use std::fs;

use pilothouse::{
    model::{Origin, kind::KindClass},
    sources::file::{Loaded, load},
};

use crate::data::{self, Case, Verdict};

/// One case for each file.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for base in data::folders("samples") {
        let mut open = vec![base.clone()];
        while let Some(folder) = open.pop() {
            for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    open.push(path);
                    continue;
                }
                let id = format!("samples/{}", path.strip_prefix(&base).unwrap().display());
                cases.push(Case { id, folder: path, proxy: String::new() });
            }
        }
    }
    cases.sort_by(|a, b| a.id.cmp(&b.id));
    cases
}

/// Whether every object of the API groups that Istio reads is taken.
pub fn check(case: &Case) -> Verdict {
    let origin = Origin { source: "file:samples".into(), ..Origin::default() };
    let Loaded { configs, findings, .. } = load(&case.folder, &origin, 16 << 20);
    let refused = findings.refused.iter().map(ToString::to_string);
    let ignored = findings.ignored.iter().filter(|object| is_read(&object.api_version));
    let ignored = ignored.map(|object| format!("{} {} {} is not read", object.api_version, object.kind, object.name));
    let text = fs::read_to_string(&case.folder).unwrap();
    let written =
        text.lines().filter_map(|line| line.strip_prefix("apiVersion:")).filter(|group| is_read(group)).count();
    let twice =
        findings.warned.iter().filter(|warned| warned.warning.starts_with("has no effect: the same object")).count();
    let taken = configs.iter().filter(|c| matches!(c.kind().class(), KindClass::Istio | KindClass::GatewayApi)).count();
    let missing = (taken + twice < written).then(|| format!("{written} objects in the text, {taken} taken"));
    Verdict::of(refused.chain(ignored).chain(missing).collect())
}

/// Whether this is an API group of Istio or of Gateway API whose objects configure proxies.
fn is_read(api_version: &str) -> bool {
    let group = api_version.trim().trim_matches('"').split('/').next().unwrap_or_default();
    group.ends_with(".istio.io") && group != "install.istio.io" || group == "gateway.networking.k8s.io"
}
