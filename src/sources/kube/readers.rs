//! Readers of an API server's answers and of kubeconfigs, as functions, for tests that feed them any text: those that are private
//! to this room.
//!
//! Built for tests only. Nothing here decides anything.

use std::{collections::BTreeSet, sync::Arc};

use kube::core::{ObjectList, WatchEvent};
use serde_json::Value;

use super::{
    RawObject, Wanted,
    content::Verdict,
    mesh::{self, Values},
    read::Reader,
    remote::named,
    remote_files::of_file,
    wanted::{NamedBy, wanted},
};
use crate::{
    model::{Config, Kind, Origin},
    sources::Refused,
};

/// An object of a watched kind: taken, or refused with the reason; `None` for a text that is no JSON.
#[must_use]
pub fn object(kind: Kind, cluster: &str, text: &str) -> Option<Result<Arc<Config>, String>> {
    let raw: RawObject = serde_json::from_str(text).ok()?;
    let origin = Origin { source: "kube".into(), cluster: cluster.into(), ..Origin::default() };
    let reader = Reader { kind, api_version: kind.api_version(), origin };
    match reader.read(&raw, |_, _| false).verdict {
        Verdict::Taken { config, .. } => Some(Ok(config)),
        Verdict::Refused(refused) => Some(Err(refused.reason)),
        Verdict::Same => None,
    }
}

/// The objects of a list, as text; `None` when the answer is none.
#[must_use]
pub fn list(text: &str) -> Option<Vec<String>> {
    let list: ObjectList<RawObject> = serde_json::from_str(text).ok()?;
    Some(list.items.iter().map(|object| object.text().to_string()).collect())
}

/// The object of a line of a watch, as text.
#[must_use]
pub fn watch_event(line: &str) -> Option<String> {
    match serde_json::from_str(line).ok()? {
        WatchEvent::Added(o) | WatchEvent::Modified(o) | WatchEvent::Deleted(o) => {
            let object: RawObject = o;
            Some(object.text().to_string())
        }
        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => None,
    }
}

/// The clusters that Secrets name, beside the main cluster `main`, and the refused ones.
#[must_use]
pub fn remote_secrets(secrets: &[&str]) -> (Wanted, Vec<Refused>) {
    let objects = secrets.iter().filter_map(|text| serde_json::from_str::<RawObject>(text).ok());
    let named = objects.map(|object| named(&object)).collect();
    wanted(
        &named,
        "main",
        &[],
        &BTreeSet::new(),
        NamedBy { source: &"remotes".into(), kind: "Secret", namespace: "istio-system" },
    )
}

/// The clusters that files with kubeconfigs name, and the refused ones.
#[must_use]
pub fn kubeconfigs(files: &[(&str, &[u8])]) -> (Wanted, Vec<Refused>) {
    let named = files.iter().map(|(name, bytes)| ((*name).to_string(), of_file(name, bytes))).collect();
    wanted(&named, "main", &[], &BTreeSet::new(), NamedBy { source: &"remotes".into(), kind: "File", namespace: "" })
}

/// The mesh settings in a ConfigMap.
///
/// # Errors
/// The text, its line and the reason.
pub fn mesh_settings(config_map: &Value) -> Result<Values, String> {
    mesh::values(config_map)
}
