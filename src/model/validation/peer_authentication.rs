//! PeerAuthentication: the selector and the modes of ports.

use super::{check::Check, names, range};
use crate::proto::istio::security::v1beta1::PeerAuthentication;

pub(super) fn validate(c: &mut Check, policy: &PeerAuthentication) {
    let labels = policy.selector.as_ref().map(|s| &s.match_labels);
    c.need(
        labels.is_some_and(|l| !l.is_empty()) || policy.port_level_mtls.is_empty(),
        "portLevelMtls needs a selector with labels: ports belong to workloads",
    );
    for port in policy.port_level_mtls.keys() {
        c.field("portLevelMtls", range::port(*port));
    }
    names::selector(c, "selector", labels);
}
