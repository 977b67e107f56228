//! Omissions of generation: their metrics and log lines.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    super::{
        generator::Slot,
        omission::{Omission, REJECTED},
        omissions::NewOmissions,
    },
    MeshGenerator,
};
use crate::{generate::check::Refusal, telemetry::count_rejected, xds::ResourceType};

/// Istio's counter of secrets that are asked for and not sent.
pub(super) const SECRET_ERRORS: &str = "pilot_sds_certificate_errors_total";

/// Clusters that need a certificate which the node does not have.
const WITHOUT_CERTIFICATE: &str = "pilothouse_clusters_without_certificate";

/// New omissions that are logged one by one.
const SHOWN: usize = 8;

pub(super) fn omission(resource: &str, refusal: Refusal) -> Omission {
    let Refusal { object, message } = refusal;
    Omission { metric: REJECTED, resource: resource.to_string(), message, object }
}

/// A policy or telemetry that Envoy would refuse; without an object it is of the mesh settings.
pub(super) fn of_policy(refusal: Refusal) -> Omission {
    let name = refusal.object.as_ref().map_or_else(|| "mesh config".to_string(), ToString::to_string);
    omission(&name, refusal)
}

/// The names behind the first.
pub(super) fn others(found: &[Omission]) -> Vec<&str> {
    found.iter().skip(1).take(SHOWN).map(|o| &*o.resource).collect()
}

pub(super) fn without_certificate(clusters: usize) -> Option<Omission> {
    let message = format!(
        "clusters that need a certificate of the mesh (ISTIO_MUTUAL): {clusters}; the node's metadata names no files \
         (TLS_CLIENT_CERT_CHAIN, TLS_CLIENT_KEY, TLS_CLIENT_ROOT_CERT), so connections to them fail"
    );
    let resource = "ISTIO_MUTUAL".to_string();
    (clusters > 0).then_some(Omission { metric: WITHOUT_CERTIFICATE, resource, message, object: None })
}

impl MeshGenerator {
    /// Keeps the omissions of a type, and logs the new ones.
    pub(super) fn tell(&self, slot: &Slot, kind: ResourceType, about: Option<&[Arc<str>]>, found: BTreeSet<Omission>) {
        let Some(NewOmissions { line, new }) = self.omissions.set(slot, kind, about, found) else { return };
        for refused in new.iter().filter(|o| o.metric == REJECTED) {
            count_rejected(if kind == ResourceType::Listener { "gateway" } else { kind.label() }, &refused.resource);
            refused.object.iter().for_each(|object| self.patch_status.skipped(object));
        }
        let Some(times) = line else { return };
        for Omission { resource, message, object, .. } in new.iter().filter(|o| !o.is_conflict()).take(SHOWN) {
            let object = object.as_ref().map(ToString::to_string);
            let namespace = &*slot.view.namespace;
            tracing::warn!(r#type = kind.short(), resource, object, namespace, times, "{message}");
        }
    }
}
