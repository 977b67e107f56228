//! The search for the patches by which Envoy would refuse a resource.

use std::{fmt::Display, sync::Arc};

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

/// Applies all patches to a resource, except those that make it unfit. `None` when a patch removes it. The result of `fit`
/// comes along where it was asked about the very resource that is given: a check of the caller need not ask again. It was not
/// where no patch applies, and it has none where the resource is unfit without patches, which its own check judges.
pub fn fitting<M: Clone, P>(
    patching: &mut Patching<'_>,
    name: impl Display,
    original: M,
    apply: impl Fn(&Patching<'_>, M) -> Option<M>,
    fit: impl Fn(&M) -> Result<P, String>,
) -> Option<(M, Option<P>)> {
    let judge = |patched: &Option<M>| patched.as_ref().map(&fit).transpose();
    let mut patched = patching.attempt(&original, &apply);
    if patching.applied.lock().is_empty() {
        patching.keep();
        return Some((original, None));
    }
    let mut judged = judge(&patched);
    if judged.is_err() && fit(&original).is_err() {
        patching.keep();
        return Some((patched?, None));
    }
    let candidates: Vec<Arc<Patch>> = patching.applied.lock().clone();
    let mut culprits: Vec<(usize, String)> = Vec::new();
    while let Some(mut reason) = judged.as_ref().err().filter(|_| culprits.len() < MOST).cloned() {
        // The shortest beginning of the list that makes the resource unfit ends with a culprit.
        let (mut fits, mut unfit) = (0, candidates.len());
        while fits + 1 < unfit {
            let middle = fits.midpoint(unfit);
            switch_off(patching, &candidates, &culprits, middle);
            match judge(&patching.attempt(&original, &apply)) {
                Err(found) => (unfit, reason) = (middle, found),
                Ok(_) => fits = middle,
            }
        }
        culprits.push((unfit - 1, reason));
        switch_off(patching, &candidates, &culprits, candidates.len());
        patched = patching.attempt(&original, &apply);
        judged = judge(&patched);
    }
    let proof = match judged {
        Ok(proof) => proof,
        Err(reason) => {
            let known: Vec<usize> = culprits.iter().map(|(index, _)| *index).collect();
            let others = (0..candidates.len()).filter(|index| !known.contains(index));
            culprits.extend(others.map(|index| (index, reason.clone())).collect::<Vec<_>>());
            patching.begin();
            patched = Some(original);
            None
        }
    };
    for (index, reason) in &culprits {
        if let Some(patch) = candidates.get(*index) {
            patching.skip(patch, &name, reason);
        }
    }
    patching.keep();
    patched.map(|patched| (patched, proof))
}

fn switch_off(patching: &mut Patching<'_>, candidates: &[Arc<Patch>], culprits: &[(usize, String)], from: usize) {
    let known = culprits.iter().filter_map(|(index, _)| candidates.get(*index));
    let behind = candidates.iter().skip(from);
    // A patch that applies in two places of the list is off when its first place is behind.
    let before: Vec<_> = candidates.iter().take(from).map(|patch| patch.identity()).collect();
    let behind = behind.map(|patch| patch.identity()).filter(|identity| !before.contains(identity));
    patching.off = known.map(|patch| patch.identity()).chain(behind).collect();
}
