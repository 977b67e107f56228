//! The state machine of one stream: subscriptions, nonces, acknowledgements and refusals of each type, the order of types, and
//! the next responses. No I/O and no clock: messages and times come in, responses go out.

pub(super) mod channel;
#[cfg(test)]
mod convergence;
pub(super) mod lists;
#[cfg(test)]
mod make_before_break;
#[cfg(test)]
mod model;
#[cfg(test)]
mod proxyless;
mod quarantine;
pub(super) mod refusals;
mod response;
pub(super) mod session;
pub(super) mod subscription;
pub(super) mod unknown;
