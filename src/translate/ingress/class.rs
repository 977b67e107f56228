//! Whether an Ingress is ours: by its class annotation, by its IngressClass, or by the mesh's mode.

use k8s_openapi::api::networking::v1::IngressClass;

use crate::{
    model::Labels,
    proto::mesh::{MeshConfig, mesh_config::IngressControllerMode as Mode},
};

/// The annotation that named the class before there were IngressClass objects.
const ANNOTATION: &str = "kubernetes.io/ingress.class";
/// `spec.controller` of the classes that are ours.
const CONTROLLER: &str = "istio.io/ingress-controller";

/// What an Ingress says of its class.
#[derive(Debug, Clone, Copy)]
pub struct IngressClassOf<'a> {
    /// Annotations of the Ingress.
    pub annotations: &'a Labels,
    /// The IngressClass that `spec.ingressClassName` names, if it exists.
    pub class: Option<&'a IngressClass>,
}

/// Whether the Ingress is ours (Istio's `shouldProcessIngressWithClass`). The annotation wins over the class; an Ingress
/// without either, or with a class that does not exist, is ours in mode DEFAULT only.
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
