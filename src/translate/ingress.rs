//! Translation of Ingress v1 to Istio Gateways and VirtualServices, with the load balancer status of each Ingress (Istio's
//! ingress controller).
//!
//! Each Ingress of Istio's class becomes one Gateway in the namespace of the ingress gateways (`K8S_INGRESS_NS`), and each host
//! one VirtualService over all of these Ingresses. `spec.defaultBackend` has no effect, as in Istio, and is reported. Ingresses
//! in namespaces excluded by `discoverySelectors` are not read.

mod addresses;
mod class;
mod gateway;
mod virtual_service;

use std::{collections::HashMap, sync::Arc};

use k8s_openapi::api::networking::v1::Ingress;

pub use class::{IngressClassOf, is_taken};

use super::{draft::Output, objects::Objects};
use crate::{
    model::{Config, Kind, Labels, namespaces::is_discovered},
    proto::mesh::{MeshConfig, mesh_config::IngressControllerMode},
};

/// An Ingress of Istio's class.
struct Taken<'a> {
    config: &'a Arc<Config>,
    ingress: &'a Ingress,
}

/// Lookups shared by the parts of the translation.
struct Inputs<'a> {
    objects: &'a Objects<'a>,
    mesh: &'a MeshConfig,
    /// Namespace of the ingress gateways.
    gateways: &'a str,
    /// Labels by namespace; empty without `discoverySelectors`.
    namespaces: HashMap<&'a str, &'a Labels>,
}

impl<'a> Inputs<'a> {
    fn of(objects: &'a Objects<'a>) -> Self {
        let mesh = &*objects.mesh().config;
        let of_namespace = |c: &'a Arc<Config>| (&*c.meta.name, &c.meta.labels);
        let namespaces = match mesh.discovery_selectors.is_empty() {
            true => HashMap::new(),
            false => {
                objects.list(Kind::Namespace).iter().filter(|c| c.is_of_main_cluster()).map(of_namespace).collect()
            }
        };
        Self { objects, mesh, gateways: &objects.features().k8s_ingress_ns, namespaces }
    }

    fn is_read(&self, config: &Config) -> bool {
        config.is_of_main_cluster()
            && (!config.kind().namespaced()
                || is_discovered(self.mesh, self.namespaces.get(&*config.meta.namespace).copied()))
    }

    /// Objects of this kind in the main cluster's selected namespaces, oldest first.
    fn list(&self, kind: Kind) -> impl Iterator<Item = &'a Arc<Config>> {
        self.objects.list(kind).iter().filter(|c| self.is_read(c))
    }

    fn get(&self, kind: Kind, namespace: &'a str, name: &'a str) -> Option<&'a Arc<Config>> {
        self.objects.get(kind, namespace, name).filter(|c| self.is_read(c))
    }

    /// The Ingresses of Istio's class, oldest first; none in mode OFF.
    fn taken(&self) -> Vec<Taken<'a>> {
        if self.mesh.ingress_controller_mode() == IngressControllerMode::Off {
            return Vec::new();
        }
        let ours = |taken: &Taken<'a>| {
            let class = taken.ingress.spec.as_ref().and_then(|spec| spec.ingress_class_name.as_deref());
            let class = class.and_then(|name| self.get(Kind::IngressClass, "", name)).and_then(|c| c.ingress_class());
            is_taken(self.mesh, &IngressClassOf { annotations: &taken.config.meta.annotations, class })
        };
        let ingress = |config: &'a Arc<Config>| Some(Taken { config, ingress: config.ingress()? });
        self.list(Kind::Ingress).filter_map(ingress).filter(ours).collect()
    }
}

/// Translates all Ingresses.
pub fn translate(objects: &Objects<'_>, output: &mut Output) {
    let inputs = Inputs::of(objects);
    let taken = inputs.taken();
    if taken.is_empty() {
        return;
    }
    for ingress in &taken {
        gateway::add(&inputs, ingress, output);
    }
    virtual_service::add(&inputs, &taken, output);
    let status = addresses::status(&inputs);
    for ingress in &taken {
        output.status(ingress.config.key(), status.clone());
    }
}

#[cfg(test)]
mod tests;
