//! The service that signs certificates of workloads: Istio's `IstioCertificateService`, for its agent and every caller with a
//! token or a certificate. The certificate is of the identity that the caller proved, whatever the request names; a request for
//! another identity, as ztunnel makes for the workloads of its node, is refused.

use bytes::Bytes;
use http::{Request, Response};
use metrics::counter;
use prost::Message;
use tokio::sync::mpsc;
use tonic::{Status, body::Body};

use super::{
    claimant::{presented, unauthenticated},
    state::XdsState,
};
use crate::{
    identity::{Authenticator, AuthorityHandle, IssueError, Presented},
    model::Identity,
    proto::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse},
    xds::{self, Calls, Outgoing, Requests, Turn, wire},
};

/// The service.
#[derive(Debug, Clone)]
pub(super) struct Certificates {
    pub(super) state: XdsState,
    pub(super) authenticator: Authenticator,
    /// `None` where the process is no authority (`ENABLE_CA_SERVER`).
    pub(super) authority: Option<AuthorityHandle>,
}

impl Calls for Certificates {
    const SERVICE: &'static str = "istio.v1.auth.IstioCertificateService";

    fn begin(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let method = xds::method(&request);
        if method != "CreateCertificate" || self.authority.is_none() {
            return Err(Status::unimplemented(format!("no method {method}")));
        }
        let presented = presented(&request);
        let opened = xds::open(request, self.state.options(), 1)?;
        tokio::spawn(serve(self.clone(), presented, opened.turn, opened.requests, opened.outgoing));
        Ok(opened.response)
    }
}

impl Certificates {
    /// The identity that a caller proves. One that is refused is counted and told of, as a client of xDS is.
    async fn caller(&self, presented: Presented) -> Result<Identity, Status> {
        let peer = presented.peer;
        let proof = self.authenticator.admit(presented).await.map_err(|error| unauthenticated(&error))?;
        proof.identity.ok_or_else(|| {
            let reason = "certificates are issued to clients that prove an identity of their own";
            self.authenticator.refused(reason, peer);
            Status::unauthenticated(reason)
        })
    }

    async fn create(&self, presented: Presented, turn: &mut Turn, mut requests: Requests) -> Result<Bytes, Status> {
        let identity = self.caller(presented).await.inspect_err(|_| {
            counter!("citadel_server_authentication_failure_count").increment(1);
        })?;
        let patience = self.state.options().first_request;
        let message = tokio::time::timeout(patience, requests.next())
            .await
            .map_err(|_| Status::deadline_exceeded("no request came"))??
            .ok_or_else(|| Status::invalid_argument("no request came"))?;
        turn.opened();
        counter!("citadel_server_csr_count").increment(1);
        let request = IstioCertificateRequest::decode(message)
            .map_err(|_| Status::invalid_argument("the request is not a protobuf message"))?;
        if request.metadata.is_some_and(|metadata| metadata.fields.contains_key("ImpersonatedIdentity")) {
            return Err(Status::permission_denied("a caller gets certificates of its own identity only"));
        }
        let authority = self.authority.as_ref().ok_or_else(|| Status::unimplemented("no certificate authority"))?;
        let cert_chain = authority.sign(&request.csr, &identity, request.validity_duration).map_err(status)?;
        Ok(Bytes::from(IstioCertificateResponse { cert_chain }.encode_to_vec()))
    }
}

fn status(error: IssueError) -> Status {
    let text = error.to_string();
    match error {
        IssueError::Request(_) => {
            counter!("citadel_server_csr_parsing_err_count").increment(1);
            Status::invalid_argument(text)
        }
        IssueError::Lifetime(..) => Status::invalid_argument(text),
        IssueError::Identity(_) => {
            counter!("citadel_server_id_extraction_err_count").increment(1);
            Status::permission_denied(text)
        }
        IssueError::Expired | IssueError::Internal(_) => {
            counter!("citadel_server_csr_sign_err_count").increment(1);
            Status::internal(text)
        }
    }
}

async fn serve(
    service: Certificates,
    presented: Presented,
    mut turn: Turn,
    requests: Requests,
    outgoing: mpsc::Sender<Outgoing>,
) {
    let answered = tokio::select! {
        answered = service.create(presented, &mut turn, requests) => answered,
        () = outgoing.closed() => return,
    };
    let status = match answered {
        Ok(message) => {
            let (head, rest) = wire::grpc_frames(&[], message);
            let _ = outgoing.send(Outgoing::message(head, rest)).await;
            Status::ok("")
        }
        Err(status) => status,
    };
    // A client that is gone needs no reason.
    let _ = outgoing.send(Outgoing::End(status)).await;
}
