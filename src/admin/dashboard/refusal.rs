//! Questions that cannot be answered.

use std::sync::Arc;

use actix_web::http::StatusCode;

use crate::{admin::AdminState, push::PushContext};

/// A refusal, for the page to show.
pub(super) type Refusal = (StatusCode, String);

/// The context in force.
pub(super) fn context(state: &AdminState) -> Result<Arc<PushContext>, Refusal> {
    let not_ready = || (StatusCode::SERVICE_UNAVAILABLE, "the first configuration is not complete yet".to_string());
    state.context().ok_or_else(not_ready)
}

/// Something that does not exist, or no longer.
pub(super) fn missing(what: &str) -> Refusal {
    (StatusCode::NOT_FOUND, what.to_string())
}
