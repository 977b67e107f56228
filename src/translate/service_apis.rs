//! The service APIs (`networking.x-k8s.io/v1alpha1`), the predecessor of Gateway API: objects are translated as in Istio 1.9.
//!
//! A Gateway of a class of Istio's becomes one Istio Gateway for the proxies labelled `istio: ingressgateway`, with a server
//! for each listener; a route becomes one VirtualService for all Gateways that it is bound to; a backend of a BackendPolicy
//! becomes one DestinationRule. Names are Istio's. No status is written, as in Istio.
//!
//! An invalid listener, rule or backend is left out and reported; the rest of its object stays. Where Istio generated a broken
//! object or did more than requested, the API's own documentation is followed: a route without host names is for all hosts, an
//! unknown match invalidates its rule, a rule without destinations answers 503, listeners with the same port and protocol get
//! unique names, and destinations are in the mesh's domain.

mod backend_policy;
mod binding;
mod destination;
mod gateway;
mod http;
mod stream;
#[cfg(test)]
mod tests;
#[allow(missing_docs, reason = "a field is the field of that name, documented by the service APIs")]
mod types;

use types::{BackendPolicySpec, GatewayClassSpec, GatewaySpec, HttpRule, RouteSpec, StreamRule};

use super::{
    decoded::{Object, decoded},
    draft::{Draft, Output},
    objects::Objects,
};
use crate::model::{Config, ConfigKey, Kind, Labels, Meta, Origin, Spec, validation::validate};

/// The decoded inputs of the translation.
struct Input<'a> {
    objects: &'a Objects<'a>,
    classes: Vec<Object<GatewayClassSpec>>,
    gateways: Vec<Object<GatewaySpec>>,
    http_routes: Vec<Object<RouteSpec<HttpRule>>>,
    tcp_routes: Vec<Object<RouteSpec<StreamRule>>>,
    tls_routes: Vec<Object<RouteSpec<StreamRule>>>,
    policies: Vec<Object<BackendPolicySpec>>,
}

impl<'a> Input<'a> {
    fn of(objects: &'a Objects<'a>, output: &mut Output) -> Self {
        Self {
            objects,
            classes: decoded(objects.list(Kind::ServiceApisGatewayClass), output),
            gateways: decoded(objects.list(Kind::ServiceApisGateway), output),
            http_routes: decoded(objects.list(Kind::ServiceApisHTTPRoute), output),
            tcp_routes: decoded(objects.list(Kind::ServiceApisTCPRoute), output),
            tls_routes: decoded(objects.list(Kind::ServiceApisTLSRoute), output),
            policies: decoded(objects.list(Kind::BackendPolicy), output),
        }
    }

    /// Host name of a service.
    fn host(&self, name: &str, namespace: &str) -> String {
        format!("{name}.{namespace}.svc.{}", self.objects.mesh().domain)
    }
}

/// Translates all objects of the service APIs.
pub fn translate(objects: &Objects<'_>, output: &mut Output) {
    let input = Input::of(objects, output);
    let bound = gateway::add(&input, output);
    http::add(&input, &bound, output);
    stream::add(&input, &bound, output);
    backend_policy::add(&input, output);
}

/// Adds the object translated from `from`; reports a name that is already taken.
fn add(from: &Config, name: String, spec: Spec, output: &mut Output) {
    let taken = format!("there is a generated {} {name} already", spec.kind());
    let (namespace, creation) = (from.meta.namespace.clone(), from.meta.creation);
    if !output.add(Draft { namespace, name, annotations: Labels::new(), creation, spec }) {
        output.report(from.key(), taken);
    }
}

/// Whether Istio's validation accepts the content. Errors are reported, with the path replaced by the source's.
fn is_sound(spec: Spec, generated: &str, written: &str, of: &ConfigKey, output: &mut Output) -> bool {
    // The user has no influence on names of generated objects.
    let meta = Meta { name: "generated".into(), namespace: of.namespace.clone(), ..Meta::default() };
    let errors =
        validate(&Config { meta, spec, status: crate::model::Status::default(), origin: Origin::default(), stamp: 0 })
            .errors;
    for error in &errors {
        output.report(of.clone(), error.replacen(generated, written, 1));
    }
    errors.is_empty()
}
