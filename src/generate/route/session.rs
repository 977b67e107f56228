//! Stateful sessions: a label of a service asks that a session stays with its endpoint
//! (Istio's `MaybeBuildStatefulSessionFilterConfig`).

use crate::{
    model::{Features, Service},
    proto::{
        envoy::{
            config::core::v3::TypedExtensionConfig,
            extensions::{
                filters::http::stateful_session::v3::{
                    StatefulSession, StatefulSessionPerRoute, stateful_session_per_route::Override,
                },
                http::stateful_session::{cookie::v3::CookieBasedSessionState, header::v3::HeaderBasedSessionState},
            },
            r#type::http::v3::Cookie,
        },
        to_any, wkt,
    },
};

/// Filter name of stateful sessions.
pub const STATEFUL_SESSION: &str = "envoy.filters.http.stateful_session";

/// The carrier of a session's endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Session {
    /// In a session cookie.
    Cookie {
        /// Name of the cookie.
        name: String,
        /// Path of the cookie.
        path: String,
    },
    /// In a header of this name.
    Header(String),
}

impl Session {
    /// The session that the labels of a service ask for; none unless `PILOT_ENABLE_PERSISTENT_SESSION_FILTER` is set.
    #[must_use]
    pub fn of(service: &Service, features: &Features) -> Option<Self> {
        if !features.enable_persistent_session_filter {
            return None;
        }
        let label = |name: &String| service.labels.get(name).filter(|value| !value.is_empty());
        if let Some(cookie) = label(&features.persistent_session_label) {
            let (name, path) = cookie.split_once(':').unwrap_or((cookie, "/"));
            return Some(Self::Cookie { name: name.to_string(), path: path.to_string() });
        }
        label(&features.persistent_session_header_label).cloned().map(Self::Header)
    }

    /// The filter's settings.
    #[must_use]
    pub fn filter(&self) -> StatefulSession {
        let (name, typed_config) = match self {
            Self::Cookie { name, path } => {
                let cookie = Cookie { name: name.clone(), path: path.clone(), ..Default::default() };
                let state = CookieBasedSessionState { cookie: Some(cookie) };
                ("envoy.http.stateful_session.cookie", to_any(&state))
            }
            Self::Header(name) => {
                ("envoy.http.stateful_session.header", to_any(&HeaderBasedSessionState { name: name.clone() }))
            }
        };
        let state = TypedExtensionConfig { name: name.to_string(), typed_config: Some(typed_config) };
        StatefulSession { session_state: Some(state), ..Default::default() }
    }

    /// The settings for one route or virtual host.
    #[must_use]
    pub fn per_route(&self) -> wkt::Any {
        to_any(&StatefulSessionPerRoute { r#override: Some(Override::StatefulSession(self.filter())) })
    }
}
