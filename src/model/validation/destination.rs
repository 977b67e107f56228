//! Destinations and weighted lists of destinations.

use super::{check::Check, names, range};
use crate::proto::networking::{Destination, RouteDestination};

pub(super) fn validate(c: &mut Check, destination: &Destination) {
    if destination.host == "*" {
        c.error("host '*' is not a destination; name a service");
    } else {
        c.field("host", names::wildcard_domain(&destination.host));
    }
    if !destination.subset.is_empty() {
        c.field("subset", names::subset_name(&destination.subset));
    }
    if let Some(port) = &destination.port {
        c.field("port.number", range::port(port.number));
    }
}

/// One weighted destination. `named`: a user wrote the host, so it must be a valid name.
pub(super) fn weighted(c: &mut Check, destination: Option<&Destination>, weight: i32, named: bool) {
    match destination {
        None => c.error("destination is required"),
        Some(destination) if named => c.at("destination", |c| validate(c, destination)),
        Some(_) => {}
    }
    c.field("weight", range::natural(weight));
}

/// Weights of a list: with several destinations, at least one weight must be above 0.
pub(super) fn weights(c: &mut Check, weights: impl ExactSizeIterator<Item = i32>) {
    let several = weights.len() > 1;
    c.need(!several || weights.map(i64::from).sum::<i64>() != 0, "route: the weights add up to 0; give one at least");
}

/// Destinations of a TLS or TCP route.
pub(super) fn list(c: &mut Check, route: &[RouteDestination], named: bool) {
    c.need(!route.is_empty(), "route is required");
    c.each("route", route, |c, r| weighted(c, r.destination.as_ref(), r.weight, named));
    weights(c, route.iter().map(|r| r.weight));
}
