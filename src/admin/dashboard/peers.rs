//! The workloads behind services as callers and as called: for each service the one that stands for it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    calls::{Caller, Decision, Verdict, decide},
    traffic::{Traffic, between},
};
use crate::{
    admin::describe::{client_tls::client_tls, full_name, node_of},
    model::{Config, Endpoint, Identity, Service},
    push::{ProxyView, PushContext, authn::MtlsMode, policies::AuthorizationPolicies},
};

/// A service with the workload that stands for it: the first one with a proxy, else the first one.
pub(super) struct Peer {
    pub(super) service: Arc<Service>,
    endpoint: Option<Arc<Endpoint>>,
    view: Option<ProxyView>,
}

/// The answer to "may one call the other".
pub(super) struct Call {
    pub(super) verdict: Verdict,
    pub(super) traffic: Traffic,
    pub(super) why: String,
    /// The object that decides.
    pub(super) by: Option<Arc<Config>>,
}

impl Peer {
    pub(super) fn of(context: &PushContext, service: &Arc<Service>) -> Self {
        let endpoint = endpoint_of(context, service);
        let node = endpoint.as_ref().and_then(|endpoint| node_of(context, endpoint));
        Self { service: service.clone(), endpoint, view: node.map(|node| context.view_of(&node)) }
    }

    /// Whether its workload has a proxy, which alone enforces policies.
    pub(super) fn has_proxy(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|endpoint| *endpoint.tls_mode == *"istio")
    }

    /// The mode in which its workload accepts mutual TLS.
    pub(super) fn accepts(&self, context: &PushContext) -> MtlsMode {
        let (Some(view), Some(endpoint)) = (&self.view, &self.endpoint) else {
            return context.authn.namespace_mode(&self.service.namespace);
        };
        context.authn.policy(&view.namespace, &view.labels).for_port(endpoint.port)
    }

    pub(super) fn policies(&self, context: &PushContext) -> AuthorizationPolicies {
        self.view.as_ref().map(|view| context.policies.authorization(view)).unwrap_or_default()
    }

    /// The identity of its workload's certificate, where the registry knows it.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.endpoint.as_ref().and_then(|endpoint| Identity::parse(&endpoint.service_account))
    }

    /// As [`Peer::identity`], without looking at the workload any further.
    pub(super) fn identity_of(context: &PushContext, service: &Service) -> Option<Identity> {
        Identity::parse(&endpoint_of(context, service)?.service_account)
    }

    /// The namespace of its workload.
    pub(super) fn namespace(&self) -> &Arc<str> {
        self.view.as_ref().map_or(&self.service.namespace, |view| &view.namespace)
    }

    pub(super) const fn view(&self) -> Option<&ProxyView> {
        self.view.as_ref()
    }

    /// Whether this one's workload may call the other's. `port` is one of the other service.
    pub(super) fn calls(&self, context: &PushContext, other: &Self, port: u32) -> Call {
        let Some(view) = self.view.as_ref() else {
            let why = "it has no workload that could call".to_string();
            return Call { verdict: Verdict::Denied, traffic: Traffic::AsSent, why, by: None };
        };
        let scope = context.scope(view);
        let (host, namespace) = (&other.service.hostname, &other.service.namespace);
        if self.has_proxy() && !scope.has_service(host, namespace) && !scope.lists(host, namespace) {
            let by = scope.sidecar.clone();
            let why = match by {
                Some(_) => "this Sidecar does not import the service: it is an unknown destination",
                None => "the service is not exported to the caller's namespace: it is an unknown destination",
            };
            return Call { verdict: Verdict::Denied, traffic: Traffic::AsSent, why: why.to_string(), by };
        }
        // A program without a proxy sends what it sends: plain text, unless it does TLS itself.
        let traffic = if self.has_proxy() {
            let rule = scope.destination_rule(view, host);
            let (tls, _) = client_tls(context, &other.service, rule, port);
            between(tls, other.accepts(context), other.has_proxy())
        } else if other.has_proxy() && other.accepts(context) == MtlsMode::Strict {
            Traffic::Conflict
        } else {
            Traffic::AsSent
        };
        if traffic == Traffic::Conflict {
            let why = "the connection fails: the one sends what the other does not accept (DestinationRule, PeerAuthentication)";
            return Call { verdict: Verdict::Denied, traffic, why: why.to_string(), by: None };
        }
        if !other.has_proxy() {
            let why = "the workload has no proxy: no policy is enforced".to_string();
            return Call { verdict: Verdict::Allowed, traffic, why, by: None };
        }
        let caller = match self.identity() {
            _ if traffic != Traffic::Mutual => Caller::Unknown,
            Some(identity) => Caller::Known(identity),
            None => Caller::OfNamespace(self.namespace().clone()),
        };
        let config = &context.mesh().config;
        let own: Vec<&str> = std::iter::once(config.trust_domain.as_str())
            .chain(config.trust_domain_aliases.iter().map(String::as_str))
            .chain(["cluster.local"])
            .collect();
        let Decision { verdict, by, why } = decide(&other.policies(context), &caller, &own);
        Call { verdict, traffic, why: why.to_string(), by }
    }
}

/// The endpoint that stands for a service.
fn endpoint_of(context: &PushContext, service: &Service) -> Option<Arc<Endpoint>> {
    let set = context.endpoints().get(&service.hostname, &service.namespace);
    let mut endpoints = set.iter().flat_map(|set| set.iter());
    let first = endpoints.next();
    let with_proxy = |endpoint: &&Arc<Endpoint>| *endpoint.tls_mode == *"istio";
    first.filter(with_proxy).or_else(|| endpoints.find(with_proxy)).or(first).cloned()
}

impl Call {
    /// As the page shows it.
    pub(super) fn shown(&self) -> Value {
        json!({
            "verdict": self.verdict.word(), "traffic": self.traffic.word(), "why": self.why,
            "by": self.by.as_ref().map(|by| named(by)),
        })
    }
}

/// An object with its place.
pub(super) fn named(config: &Config) -> Value {
    json!({
        "kind": config.kind().as_str(), "group": config.kind().group(), "namespace": &*config.meta.namespace,
        "name": &*config.meta.name, "fullName": full_name(config), "place": config.origin.place(),
    })
}
