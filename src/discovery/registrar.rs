//! The port to the room that registers workloads. `app` joins the two.

use std::{fmt, net::SocketAddr, sync::Arc, time::SystemTime};

use futures::future::BoxFuture;
use tonic::Status;

use crate::model::{Identity, Node};

/// The type of requests that tell a workload's health: an error says that it cannot serve. They are never answered.
pub const HEALTH: &str = "type.googleapis.com/istio.v1.HealthInformation";

/// A proxy that has connected and may be served.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Its node.
    pub node: Arc<Node>,
    /// The identity that it proved.
    pub identity: Option<Identity>,
    /// The address that it connects from.
    pub peer: Option<SocketAddr>,
    /// When it connected.
    pub at: SystemTime,
}

/// Why a proxy may not register. Its stream ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationRefusal {
    /// The request is malformed.
    #[error("{0}")]
    Invalid(String),
    /// The object that it refers to does not exist.
    #[error("{0}")]
    Missing(String),
    /// The entry belongs to another workload.
    #[error("{0}")]
    Denied(String),
    /// The answer is not known at the moment.
    #[error("{0}")]
    Unavailable(String),
}

impl From<RegistrationRefusal> for Status {
    fn from(refusal: RegistrationRefusal) -> Self {
        match refusal {
            RegistrationRefusal::Invalid(text) => Self::invalid_argument(text),
            RegistrationRefusal::Missing(text) => Self::failed_precondition(text),
            RegistrationRefusal::Denied(text) => Self::permission_denied(text),
            RegistrationRefusal::Unavailable(text) => Self::unavailable(text),
        }
    }
}

/// A registered connection. Dropping it says that the connection is gone.
pub trait Presence: Send + Sync + 'static {
    /// The workload tells its health; `Err` holds the reason why it cannot serve. Must not block.
    fn health(&self, health: Result<(), String>);
}

/// Registers workloads.
pub trait Registrar: Send + Sync + 'static {
    /// Registers the workload behind a proxy; `None` when it does not ask for it.
    fn arrive(&self, arrival: Arrival) -> BoxFuture<'static, Result<Option<Box<dyn Presence>>, RegistrationRefusal>>;
}

impl fmt::Debug for dyn Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registrar")
    }
}
