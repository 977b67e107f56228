//! Destinations of rules and their weights.

use std::cmp::Reverse;

use super::{Input, types::ForwardTo};
use crate::{
    model::ConfigKey,
    proto::networking::{Destination, PortSelector},
    translate::draft::Output,
};

/// The destinations of a rule with their weights; invalid ones are reported and left out.
pub fn weighted<'a>(
    input: &Input<'_>,
    of: &ConfigKey,
    path: &str,
    all: &'a [ForwardTo],
    output: &mut Output,
) -> Vec<(&'a ForwardTo, Destination, i32)> {
    let mut found = Vec::new();
    for (index, to) in all.iter().enumerate() {
        match destination(input, &of.namespace, to) {
            Some(destination) => found.push((to, destination)),
            None => {
                let reason = format!("{path}.forwardTo[{index}]: only a serviceName can be forwarded to");
                output.report(of.clone(), reason);
            }
        }
    }
    let weights: Vec<u32> = found.iter().map(|(to, _)| to.weight.unwrap_or(1)).collect();
    found.into_iter().zip(percentages(&weights)).map(|((to, destination), weight)| (to, destination, weight)).collect()
}

fn destination(input: &Input<'_>, namespace: &str, to: &ForwardTo) -> Option<Destination> {
    let name = to.service_name.as_deref().filter(|name| !name.is_empty())?;
    let port = to.port.map(|number| PortSelector { number });
    Some(Destination { host: input.host(name, namespace), port, ..Destination::default() })
}

/// Relative weights as percentages (Istio's `standardizeWeights`). The remainder after rounding down goes to the largest
/// fractions, the first of equals first. All zero means equal shares; a single destination has no weight.
fn percentages(weights: &[u32]) -> Vec<i32> {
    if weights.len() == 1 {
        return vec![0];
    }
    let even = weights.iter().all(|w| *w == 0);
    let weights: Vec<u64> = weights.iter().map(|w| if even { 1 } else { u64::from(*w) }).collect();
    let total = weights.iter().sum::<u64>().max(1);
    let mut shares: Vec<(u64, u64)> = weights.iter().map(|w| (w * 100 / total, w * 100 % total)).collect();
    let left = 100_u64.saturating_sub(shares.iter().map(|(share, _)| share).sum());
    let mut order: Vec<&mut (u64, u64)> = shares.iter_mut().collect();
    order.sort_by_key(|(_, remainder)| Reverse(*remainder));
    order.into_iter().zip(0..left).for_each(|(share, _)| share.0 += 1);
    shares.into_iter().map(|(share, _)| i32::try_from(share).unwrap_or(100)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_rest_of_the_weights_goes_to_the_largest_remainders() {
        for (weights, shares) in [
            (&[7][..], &[0][..]),
            (&[0, 0], &[50, 50]),
            (&[5, 0], &[100, 0]),
            (&[2, 2, 2], &[34, 33, 33]),
            (&[1, 2], &[33, 67]),
            (&[2, 2, 2, 6], &[17, 17, 16, 50]),
            (&[1, 999_999], &[0, 100]),
        ] {
            assert_eq!(percentages(weights), shares, "{weights:?}");
        }
        assert!(percentages(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn shares_add_up_and_are_off_by_less_than_one(weights in prop::collection::vec(any::<u32>(), 2..150)) {
            let shares = percentages(&weights);
            prop_assert_eq!(shares.iter().sum::<i32>(), 100);
            let total = weights.iter().map(|w| f64::from(*w)).sum::<f64>();
            for (weight, share) in weights.iter().zip(&shares).filter(|_| total > 0.0) {
                prop_assert!((f64::from(*weight) * 100.0 / total - f64::from(*share)).abs() < 1.000_001);
            }
        }
    }
}
