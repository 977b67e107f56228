//! Decides whether Istio handles an Ingress: by its class annotation, its IngressClass, or the mesh's mode.

use k8s_openapi::api::networking::v1::IngressClass;

use crate::{
    model::Labels,
    proto::mesh::{MeshConfig, mesh_config::IngressControllerMode as Mode},
};

/// The annotation for the class that preceded IngressClass objects.
const ANNOTATION: &str = "kubernetes.io/ingress.class";
/// `spec.controller` of Istio's classes.
const CONTROLLER: &str = "istio.io/ingress-controller";

/// The class settings of an Ingress.
#[derive(Debug, Clone, Copy)]
pub struct IngressClassOf<'a> {
    /// Annotations of the Ingress.
    pub annotations: &'a Labels,
    /// The IngressClass named by `spec.ingressClassName`, if it exists.
    pub class: Option<&'a IngressClass>,
}

/// Whether Istio handles the Ingress (`shouldProcessIngressWithClass`). The annotation takes precedence over the class. An
/// Ingress without either, or with a class that does not exist, is handled in mode DEFAULT only.
#[must_use]
pub fn is_taken(mesh: &MeshConfig, of: &IngressClassOf<'_>) -> bool {
    let mode = Mode::try_from(mesh.ingress_controller_mode).unwrap_or(Mode::Unspecified);
    if let Some(class) = of.annotations.get(ANNOTATION) {
        return matches!(mode, Mode::Strict | Mode::Default) && *class == mesh.ingress_class;
    }
    match of.class {
        Some(class) => class.spec.as_ref().and_then(|s| s.controller.as_deref()) == Some(CONTROLLER),
        None => mode == Mode::Default,
    }
}
