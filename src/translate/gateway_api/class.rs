//! GatewayClasses: Istio's controllers, the meaning of each class, and the status of a class.

use serde_json::{Value, json};

use super::{
    conditions::{Conditions, existing},
    input::Input,
};
use crate::{model::Features, translate::draft::Output};

/// Controller of waypoints.
pub const MESH_CONTROLLER: &str = "istio.io/mesh-controller";

const UNMANAGED_CONTROLLER: &str = "istio.io/unmanaged-gateway";
const EAST_WEST_CONTROLLER: &str = "istio.io/eastwest-controller";

/// The controller of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Gateways of this cluster, except east-west ones.
    Gateway,
    /// Gateways outside of this cluster: they get a status and no configuration.
    Unmanaged,
    /// Waypoints: they get a status and no routes.
    Mesh,
    /// East-west gateways between networks.
    EastWest,
}

impl Controller {
    /// The controller with this name, if its feature is enabled.
    pub fn parse(name: &str, features: &Features) -> Option<Self> {
        match name {
            name if name == features.gateway_api_controller_name => Some(Self::Gateway),
            UNMANAGED_CONTROLLER if features.multi_network_gateway_api => Some(Self::Unmanaged),
            MESH_CONTROLLER if has_waypoints(features) => Some(Self::Mesh),
            EAST_WEST_CONTROLLER if features.enable_ambient_multi_network => Some(Self::EastWest),
            _ => None,
        }
    }

    /// Whether ListenerSets may attach to its Gateways.
    pub fn supports_listener_sets(self) -> bool {
        self == Self::Gateway
    }

    /// Whether names of deployed objects omit the class.
    pub fn disables_name_suffix(self) -> bool {
        matches!(self, Self::Mesh | Self::EastWest)
    }

    /// The address type reported when there is no external address; empty for both types.
    pub fn address_type(self) -> &'static str {
        match self {
            Self::Gateway | Self::Unmanaged => "Hostname",
            Self::Mesh | Self::EastWest => "",
        }
    }
}

fn has_waypoints(features: &Features) -> bool {
    features.enable_ambient_waypoints || features.enable_ambient
}

/// The controller of a class: from its GatewayClass object, or, without one of Istio's, from the name of a built-in class.
pub fn controller_of(input: &Input<'_>, class: &str) -> Option<Controller> {
    let features = input.objects.features();
    let object = input.classes.iter().find(|c| c.name() == class);
    if let Some(controller) = object.and_then(|c| Controller::parse(&c.spec.controller_name, features)) {
        return Some(controller);
    }
    match class {
        name if name == features.gateway_api_default_gatewayclass => Some(Controller::Gateway),
        "istio-remote" if features.multi_network_gateway_api => Some(Controller::Unmanaged),
        "istio-waypoint" if has_waypoints(features) => Some(Controller::Mesh),
        "istio-east-west" if features.enable_ambient_multi_network => Some(Controller::EastWest),
        _ => None,
    }
}

/// Whether the class is built in.
pub fn is_built_in(class: &str, features: &Features) -> bool {
    class == features.gateway_api_default_gatewayclass
        || (class == "istio-remote" && features.multi_network_gateway_api)
        || (class == "istio-waypoint" && has_waypoints(features))
        || (class == "istio-east-west" && features.enable_ambient_multi_network)
}

/// Writes the status of every class of Istio's controllers.
pub fn report(input: &Input<'_>, output: &mut Output) {
    let conditions = Conditions::default().good("Accepted", "Accepted", "Handled by Istio controller");
    for class in &input.classes {
        if Controller::parse(&class.spec.controller_name, input.objects.features()).is_none() {
            continue;
        }
        let mut status = Value::clone(&class.config.status);
        if !status.is_object() {
            status = json!({});
        }
        status["conditions"] = json!(conditions.over(existing(&class.config.status), class.generation()));
        output.status(class.config.key(), status);
    }
}
