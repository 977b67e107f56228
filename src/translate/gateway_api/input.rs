//! All Gateway API objects of a translation, decoded.

use std::{collections::BTreeMap, sync::Arc};

use super::types::{
    gateway::{GatewayClassSpec, GatewaySpec, ListenerSetSpec, ReferenceGrantSpec},
    policy::{BackendSpec, BackendTlsPolicySpec, BackendTrafficPolicySpec, InferencePoolSpec},
    route::{GrpcRule, HttpRule, RouteSpec, StreamRule},
};
pub use crate::translate::decoded::Object;
use crate::{
    model::{Kind, Labels, Service},
    translate::{decoded::decoded, draft::Output, objects::Objects},
};

/// The decoded inputs of the translation.
pub struct Input<'a> {
    /// Index of all other objects.
    pub objects: &'a Objects<'a>,
    pub classes: Vec<Object<GatewayClassSpec>>,
    pub gateways: Vec<Object<GatewaySpec>>,
    pub listener_sets: Vec<Object<ListenerSetSpec>>,
    pub grants: Vec<Object<ReferenceGrantSpec>>,
    pub http_routes: Vec<Object<RouteSpec<HttpRule>>>,
    pub grpc_routes: Vec<Object<RouteSpec<GrpcRule>>>,
    pub tcp_routes: Vec<Object<RouteSpec<StreamRule>>>,
    pub tls_routes: Vec<Object<RouteSpec<StreamRule>>>,
    pub tls_policies: Vec<Object<BackendTlsPolicySpec>>,
    pub traffic_policies: Vec<Object<BackendTrafficPolicySpec>>,
    pub backends: Vec<Object<BackendSpec>>,
    pub pools: Vec<Object<InferencePoolSpec>>,
}

impl<'a> Input<'a> {
    /// Decodes all objects. Experimental kinds are read only with their feature flag.
    pub fn of(objects: &'a Objects<'a>, output: &mut Output) -> Self {
        let features = objects.features();
        let alpha = |kind| if features.enable_alpha_gateway_api { objects.list(kind) } else { &[] };
        let pools = match features.enable_gateway_api_inference_extension {
            true => objects.list(Kind::InferencePool),
            false => &[],
        };
        Self {
            classes: decoded(objects.list(Kind::GatewayClass), output),
            gateways: decoded(objects.list(Kind::KubernetesGateway), output),
            listener_sets: decoded(objects.list(Kind::ListenerSet), output),
            grants: decoded(objects.list(Kind::ReferenceGrant), output),
            http_routes: decoded(objects.list(Kind::HTTPRoute), output),
            grpc_routes: decoded(objects.list(Kind::GRPCRoute), output),
            tcp_routes: decoded(objects.list(Kind::TCPRoute), output),
            tls_routes: decoded(objects.list(Kind::TLSRoute), output),
            tls_policies: decoded(objects.list(Kind::BackendTLSPolicy), output),
            traffic_policies: decoded(alpha(Kind::XBackendTrafficPolicy), output),
            backends: decoded(alpha(Kind::XBackend), output),
            pools: decoded(pools, output),
            objects,
        }
    }

    /// The Gateway with this name.
    pub fn gateway(&self, namespace: &str, name: &str) -> Option<&Object<GatewaySpec>> {
        self.gateways.iter().find(|g| g.namespace() == namespace && g.name() == name)
    }

    /// The service with this host name in this namespace.
    pub fn service(&self, hostname: &str, namespace: &str) -> Option<&Arc<Service>> {
        self.objects.services(hostname).iter().copied().find(|s| *s.namespace == *namespace)
    }

    /// Labels of a namespace; `None` without a Namespace object.
    pub fn namespace_labels(&self, name: &str) -> Option<&Labels> {
        self.objects.get(Kind::Namespace, "", name).map(|c| &c.meta.labels)
    }

    /// DNS suffix of the cluster.
    pub fn domain(&self) -> &str {
        &self.objects.mesh().domain
    }

    /// All namespaces with their labels, by name.
    pub fn namespaces(&self) -> BTreeMap<String, Labels> {
        let list = self.objects.list(Kind::Namespace).iter().filter(|c| c.is_of_main_cluster());
        list.map(|c| (c.meta.name.to_string(), c.meta.labels.clone())).collect()
    }
}
