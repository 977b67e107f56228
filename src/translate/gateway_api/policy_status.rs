//! Statuses of policies: an entry for each ancestor. Entries of other controllers are kept.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    class::MESH_CONTROLLER,
    conditions::{Condition, Conditions},
    types::{ParentReference, policy::TargetReference},
};
use crate::model::{Config, Features, Kind};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AncestorStatus {
    #[serde(alias = "parentRef")]
    ancestor_ref: ParentReference,
    controller_name: String,
    conditions: Vec<Condition>,
}

/// The collected ancestors of one policy.
pub struct Ancestors<'a> {
    policy: &'a Config,
    features: &'a Features,
    form: Form,
    old: Vec<AncestorStatus>,
    new: Vec<AncestorStatus>,
}

/// The form of ancestors in a status, and their maximum number.
struct Form {
    list: &'static str,
    reference: &'static str,
    most: usize,
}

impl<'a> Ancestors<'a> {
    /// An empty list of ancestors for a policy.
    pub fn of(policy: &'a Config, features: &'a Features) -> Self {
        Self::new(policy, features, Form { list: "ancestors", reference: "ancestorRef", most: 16 })
    }

    /// An empty list of ancestors for an XBackend.
    pub fn of_backend(backend: &'a Config, features: &'a Features) -> Self {
        Self::new(backend, features, Form { list: "parents", reference: "parentRef", most: 32 })
    }

    fn new(policy: &'a Config, features: &'a Features, form: Form) -> Self {
        let old = policy.status.get(form.list).map(|a| Vec::deserialize(a).unwrap_or_default());
        Self { policy, features, form, old: old.unwrap_or_default(), new: Vec::new() }
    }

    /// Adds the target of a policy as an ancestor in the mesh.
    pub fn add_target(&mut self, target: &TargetReference, conditions: &Conditions) {
        let reference = ParentReference {
            group: Some(target.group.clone()),
            kind: Some(target.kind.clone()),
            name: target.name.clone(),
            section_name: target.section_name.clone(),
            ..ParentReference::default()
        };
        self.add(reference, MESH_CONTROLLER.to_string(), conditions);
    }

    /// Adds a Gateway as an ancestor.
    pub fn add_gateway(&mut self, namespace: Option<&str>, name: &str, conditions: &Conditions) {
        let reference = ParentReference {
            group: Some(Kind::KubernetesGateway.group().into()),
            kind: Some(Kind::KubernetesGateway.as_str().into()),
            namespace: namespace.map(Into::into),
            name: name.to_string(),
            ..ParentReference::default()
        };
        self.add(reference, self.features.gateway_api_controller_name.clone(), conditions);
    }

    fn add(&mut self, ancestor_ref: ParentReference, controller_name: String, conditions: &Conditions) {
        let before = self.old.iter().find(|a| a.ancestor_ref == ancestor_ref);
        let before = before.map(|a| a.conditions.clone()).unwrap_or_default();
        let conditions = conditions.over(before, self.policy.meta.generation);
        self.new.push(AncestorStatus { ancestor_ref, controller_name, conditions });
    }

    /// The status with all ancestors.
    pub fn status(mut self) -> Value {
        let mut all = Vec::new();
        for old in std::mem::take(&mut self.old) {
            let ours = [MESH_CONTROLLER, &self.features.gateway_api_controller_name].contains(&&*old.controller_name);
            if !ours {
                all.push(old);
            } else if let Some(place) = self.new.iter().position(|n| n.ancestor_ref == old.ancestor_ref) {
                all.push(self.new.remove(place));
            }
        }
        all.append(&mut self.new);
        all.truncate(self.form.most);
        let entry = |a: AncestorStatus| {
            json!({
                self.form.reference: a.ancestor_ref,
                "controllerName": a.controller_name,
                "conditions": a.conditions,
            })
        };
        let mut status = if self.policy.status.is_object() { Value::clone(&self.policy.status) } else { json!({}) };
        status[self.form.list] = all.into_iter().map(entry).collect();
        status
    }
}
