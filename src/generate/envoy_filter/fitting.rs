//! The search for the patches by which Envoy would refuse a resource.

use std::sync::Arc;

use super::Patching;
use crate::push::envoy_filters::Patch;

/// Patches that are searched for one by one; where more do not fit, none is applied.
const MOST: usize = 8;

impl Patching<'_> {
    fn attempt<M: Clone>(&self, original: &M, apply: &impl Fn(&Self, M) -> Option<M>) -> Option<M> {
        self.begin();
        apply(self, original.clone())
    }
}

/// Applies all patches to a resource, except those that make it unfit. `None` when a patch removes it.
pub fn fitting<M: Clone>(
    patching: &mut Patching<'_>,
    name: &str,
    original: M,
    apply: impl Fn(&Patching<'_>, M) -> Option<M>,
    fit: impl Fn(&M) -> Result<(), String>,
) -> Option<M> {
    let fault = |patched: &Option<M>| patched.as_ref().and_then(|m| fit(m).err());
    let mut patched = patching.attempt(&original, &apply);
    if patching.applied.lock().is_empty() {
        patching.keep();
        return Some(original);
    }
    // A resource that is unfit without patches is judged by its own check.
    if fault(&patched).is_none() || fit(&original).is_err() {
        patching.keep();
        return patched;
    }
    let candidates: Vec<Arc<Patch>> = patching.applied.lock().clone();
    let mut culprits: Vec<(usize, String)> = Vec::new();
    while let Some(reason) = fault(&patched).filter(|_| culprits.len() < MOST) {
        let mut reason = reason;
        // The shortest beginning of the list that makes the resource unfit ends with a culprit.
        let (mut fits, mut unfit) = (0, candidates.len());
        while fits + 1 < unfit {
            let middle = fits.midpoint(unfit);
            switch_off(patching, &candidates, &culprits, middle);
            match fault(&patching.attempt(&original, &apply)) {
                Some(found) => (unfit, reason) = (middle, found),
                None => fits = middle,
            }
        }
        culprits.push((unfit - 1, reason));
        switch_off(patching, &candidates, &culprits, candidates.len());
        patched = patching.attempt(&original, &apply);
    }
    if let Some(reason) = fault(&patched) {
        let known: Vec<usize> = culprits.iter().map(|(index, _)| *index).collect();
        let others = (0..candidates.len()).filter(|index| !known.contains(index));
        culprits.extend(others.map(|index| (index, reason.clone())).collect::<Vec<_>>());
        patching.begin();
        patched = Some(original);
    }
    for (index, reason) in &culprits {
        if let Some(patch) = candidates.get(*index) {
            patching.skip(patch, name, reason);
        }
    }
    patching.keep();
    patched
}

fn switch_off(patching: &mut Patching<'_>, candidates: &[Arc<Patch>], culprits: &[(usize, String)], from: usize) {
    let known = culprits.iter().filter_map(|(index, _)| candidates.get(*index));
    let behind = candidates.iter().skip(from);
    // A patch that applies in two places of the list is off when its first place is behind.
    let before: Vec<_> = candidates.iter().take(from).map(|patch| patch.identity()).collect();
    let behind = behind.map(|patch| patch.identity()).filter(|identity| !before.contains(identity));
    patching.off = known.map(|patch| patch.identity()).chain(behind).collect();
}
