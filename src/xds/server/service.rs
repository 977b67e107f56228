//! A gRPC service over raw bodies: tonic's codec would copy every message once per client.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
};

use http::{Request, Response};
use tonic::{Status, body::Body, server::NamedService};
use tower::Service;

/// Begins the calls of one service.
pub(crate) trait Calls: Clone + Send + Sync + 'static {
    /// Its full name.
    const SERVICE: &'static str;

    /// Begins a call, or refuses it.
    fn begin(&self, request: Request<Body>) -> Result<Response<Body>, Status>;
}

/// The service of these calls, for tonic's router.
#[derive(Debug, Clone)]
pub(crate) struct RawService<C>(pub(crate) C);

/// The last part of a call's path.
pub(crate) fn method(request: &Request<Body>) -> &str {
    request.uri().path().rsplit('/').next().unwrap_or_default()
}

impl<C: Calls> NamedService for RawService<C> {
    const NAME: &'static str = C::SERVICE;
}

impl<C: Calls> Service<Request<Body>> for RawService<C> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(self.0.begin(request).unwrap_or_else(Status::into_http)))
    }
}
