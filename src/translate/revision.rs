//! Whose statuses they are: of an object that names another control plane nothing is said, though it is translated.
//!
//! Istio translates objects of all revisions, so that an object that changes hands never goes out of force, and leaves their
//! statuses to the control plane that `istio.io/rev` names. Tags of revisions are not read here: where neither object nor
//! namespace names one, the object is ours.

use super::input::Input;
use crate::model::{ConfigKey, Labels};

const REVISION: &str = "istio.io/rev";

/// Whether the status of an object is ours to say.
pub fn is_ours(input: &Input<'_>, key: &ConfigKey) -> bool {
    let Some(object) = input.objects.get(key.kind, &key.namespace, &key.name) else { return true };
    let of = |labels: &Labels| labels.get(REVISION).cloned();
    let named = of(&object.meta.labels).or_else(|| input.namespace_labels(&key.namespace).and_then(of));
    named.is_none_or(|named| names_us(&named, &input.objects.features().revision))
}

/// No name and `default` are one.
fn names_us(named: &str, own: &str) -> bool {
    named.is_empty() || named == own || (named == "default" && own.is_empty())
}

#[cfg(test)]
mod tests {
    use super::names_us;

    #[test]
    fn another_revision_speaks_for_itself() {
        assert!(names_us("", "") && names_us("", "canary") && names_us("canary", "canary") && names_us("default", ""));
        assert!(!names_us("canary", "") && !names_us("canary", "default") && !names_us("default", "canary"));
    }
}
