//! GatewayClasses: which controllers are ours, what each class means, and the status of a class.

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

/// Who handles a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Ordinary gateways.
    Gateway,
    /// Gateways that are not in this cluster: a status, nothing else.
    Unmanaged,
    /// Waypoints: a status, no routes.
    Mesh,
    /// Gateways between networks.
    EastWest,
}

impl Controller {
    /// The controller of this name, where its feature is on.
    pub fn parse(name: &str, features: &Features) -> Option<Self> {
        match name {
            name if name == features.gateway_api_controller_name => Some(Self::Gateway),
            UNMANAGED_CONTROLLER if features.multi_network_gateway_api => Some(Self::Unmanaged),
            MESH_CONTROLLER if has_waypoints(features) => Some(Self::Mesh),
            EAST_WEST_CONTROLLER if features.enable_ambient_multi_network => Some(Self::EastWest),
            _ => None,
        }
    }

    /// Whether ListenerSets may attach.
    pub fn supports_listener_sets(self) -> bool {
        self == Self::Gateway
    }

    /// Whether the names of what is deployed lack the class.
    pub fn disables_name_suffix(self) -> bool {
        matches!(self, Self::Mesh | Self::EastWest)
    }

    /// The type of address that is reported when there is no external one; both where it is empty.
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

/// The controller of a class: by its object, or, where there is none of ours, by the name of a class that is built in.
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

/// Whether the class is one that is built in.
pub fn is_built_in(class: &str, features: &Features) -> bool {
    class == features.gateway_api_default_gatewayclass
        || (class == "istio-remote" && features.multi_network_gateway_api)
        || (class == "istio-waypoint" && has_waypoints(features))
        || (class == "istio-east-west" && features.enable_ambient_multi_network)
}

/// Writes the status of every class that is ours.
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
