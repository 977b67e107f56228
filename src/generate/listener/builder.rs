//! The state that all listener builders of one proxy share: its inputs, and the parts that are made from them once for all
//! chains.

use std::{cell::OnceCell, net::IpAddr, ops::Deref};

use super::{inputs::Inputs, telemetry::ClassTelemetry};
use crate::{
    generate::{
        authorization, check::Refusal, extension::Extensions, proxy_config::ListenerClass, request_authentication,
    },
    proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter,
    push::{ProxyView, PushContext},
};

/// The builder of the listeners of one view.
#[derive(Debug)]
pub struct Builder<'a> {
    inputs: Inputs<'a>,
    access: OnceCell<Access>,
    /// By class: inbound, outbound, gateway.
    telemetry: [OnceCell<ClassTelemetry>; 3],
    extensions: OnceCell<Extensions>,
}

impl<'a> Deref for Builder<'a> {
    type Target = Inputs<'a>;

    fn deref(&self) -> &Self::Target {
        &self.inputs
    }
}

/// The filters that authorize requests to the workload.
#[derive(Debug)]
pub struct Access {
    /// Those of AuthorizationPolicies.
    pub authorization: authorization::Filters,
    /// That of RequestAuthentications.
    pub tokens: Option<HttpFilter>,
    /// RequestAuthentications that Envoy would refuse.
    refused_tokens: Vec<Refusal>,
}

impl<'a> Builder<'a> {
    /// Reads the inputs of the builders.
    #[must_use]
    pub fn new(context: &'a PushContext, view: &'a ProxyView) -> Self {
        Self {
            inputs: Inputs::new(context, view),
            access: OnceCell::new(),
            telemetry: Default::default(),
            extensions: OnceCell::new(),
        }
    }

    /// Access logs, tracing and metrics of a class of listeners; read once, for all chains.
    #[must_use]
    pub fn telemetry(&self, class: ListenerClass) -> &ClassTelemetry {
        let [inbound, outbound, gateway] = &self.telemetry;
        let of_class = match class {
            ListenerClass::SidecarInbound => inbound,
            ListenerClass::SidecarOutbound => outbound,
            ListenerClass::Gateway => gateway,
        };
        of_class.get_or_init(|| ClassTelemetry::of(&self.inputs, class))
    }

    /// The filters that authorize requests to the workload; read once, for all chains.
    #[must_use]
    pub fn access(&self) -> &Access {
        self.access.get_or_init(|| {
            let policies = self.context.policies.authorization(self.view);
            let (tokens, refused_tokens) = request_authentication::filter(self.context, self.view);
            let authorization = authorization::Filters::of(self.context, &policies);
            Access { authorization, tokens, refused_tokens }
        })
    }

    /// The extensions of the proxy; read once, for all chains.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        self.extensions.get_or_init(|| Extensions::of(self.context, self.view))
    }

    /// Policies and telemetry that Envoy would refuse, of those that were read.
    #[must_use]
    pub fn refused(&self) -> Vec<Refusal> {
        let of = |access: &Access| [&access.authorization.refused[..], &access.refused_tokens].concat();
        let mut refused = self.access.get().map(of).unwrap_or_default();
        refused.extend(self.telemetry.iter().filter_map(OnceCell::get).flat_map(|t| &t.refused).cloned());
        refused
    }
}

/// Whether a text is an IP address.
#[must_use]
pub fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}
