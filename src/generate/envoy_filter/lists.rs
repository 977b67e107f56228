//! Changes of ordered lists: insertion beside the first match, replacement of the first match.

use std::sync::Arc;

use super::Patching;
use crate::{proto::networking::envoy_filter::patch::Operation, push::envoy_filters::Patch};

/// Applies everything but merges. `named` tells whether the patch names one of the items; without a name insertions are at the
/// ends, and there is nothing to replace or remove.
pub(super) fn change<T: prost::Message + Default>(
    patching: &Patching<'_>,
    patch: &Arc<Patch>,
    list: &mut Vec<T>,
    named: bool,
    matches: impl Fn(&T) -> bool,
) {
    let value = || patch.value.as_ref().map(|value| value.decoded::<T>()).unwrap_or_default();
    let found = || list.iter().position(&matches);
    match (patch.operation, named) {
        (Operation::Add, _) | (Operation::InsertAfter, false) => list.push(value()),
        (Operation::InsertFirst, _) | (Operation::InsertBefore, false) => list.insert(0, value()),
        (Operation::InsertAfter, true) => {
            let Some(place) = found() else { return };
            list.insert(place + 1, value());
        }
        (Operation::InsertBefore, true) => {
            let Some(place) = found() else { return };
            list.insert(place, value());
        }
        (Operation::Replace, true) => {
            let Some(item) = list.iter_mut().find(|item| matches(item)) else { return };
            *item = value();
        }
        (Operation::Remove, true) => {
            let before = list.len();
            list.retain(|item| !matches(item));
            if list.len() == before {
                return;
            }
        }
        _ => return,
    }
    patching.applied(patch);
}
