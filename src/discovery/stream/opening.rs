//! The beginning of a stream: the first request, the node and its identity, admission, registration.

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use tokio::{sync::mpsc, time::Instant};
use tonic::Status;
use xxhash_rust::xxh3::xxh3_128;

use super::{Start, Stream, secret_asking::SecretAsking};
use crate::{
    discovery::{
        claimant::{self, authorize, authorize_objects, read_node, unauthenticated},
        debug::Questions,
        generator::Claim,
        mesh_generator::takes_certificate,
        ports::Ports,
        registrar::{Arrival, HEALTH, Presence, Registrar},
        state::XdsState,
    },
    identity::{Authenticator, IdentityHold, Presented, Proof},
    model::{Identity, Node},
    push::{ProxyView, PushContext},
    telemetry::LogThrottle,
    xds::{
        self, Outgoing, PerType, Protocol, Requests, ResourceType, Session, UnknownTypes,
        wire::request::{Request, RequestError},
    },
};

/// Messages about health that may come before a client asks for anything.
const MOST_HEALTH_FIRST: usize = 64;

/// A client that registers is answered when its entry is in force, or after this time: its inbound services follow from the
/// entry.
const REGISTERED: Duration = Duration::from_secs(5);
/// Waits for the first request, which holds the node of the client, and registers it.
pub(super) async fn open(
    start: Start,
    mut requests: Requests,
    outgoing: &mpsc::Sender<Outgoing>,
) -> Result<Stream, Status> {
    let Start { state, ports, protocol, only, mut turn, presented } = start;
    if state.current().is_none() || state.is_shutting_down() {
        return Err(Status::unavailable("not ready: the first configuration is not complete yet"));
    }
    let is_secure = presented.secure;
    let proof = prove(ports.authenticator.as_ref(), presented).await?;
    let lapse = ports.authenticator.as_ref().map(|authenticator| authenticator.lapse(&proof));
    let first = tokio::time::timeout(state.options().first_request, first_request(&mut requests, protocol))
        .await
        .map_err(|_| Status::deadline_exceeded("no request came"))??;
    turn.opened();
    let request = parse(protocol, &first)?;
    let mut node_bytes = turn.node();
    if !node_bytes.set(request.node.len()) {
        return Err(Status::resource_exhausted(
            "the nodes of this connection's streams, or of all streams, are too large",
        ));
    }
    let (key, mut node) = (xxh3_128(request.node), read_node(&request)?);
    if let Some(cluster) = state.options().cluster_aliases.get(&*node.cluster_id) {
        node.cluster_id = cluster.clone();
    }
    let claimed = || Some(Identity::claimed(&node, &state.current()?.context.mesh().config.trust_domain));
    let is_proven = proof.identity.is_some() || proof.believes_node;
    let is_believed = proof.believes_node || !is_secure && state.options().trust_nodes;
    let identity = proof.identity.or_else(|| claimed().filter(|_| is_believed));
    if state.current().is_none_or(|published| published.context.features().enable_xds_identity_check) {
        authorize(&node, identity.as_ref()).inspect_err(|status| {
            if let Some(authenticator) = &ports.authenticator {
                authenticator.refused(status.message(), turn.client().peer);
            }
        })?;
    }
    authorize_objects(&state, &node, identity.as_ref())?;
    let not_ready = || Status::unavailable("not ready");
    let certificate = hold_certificate(&state, &ports, &node, identity.as_ref().filter(|_| is_proven)).await?;
    let claim = Claim { identity: identity.as_ref(), is_proven };
    if !state.view_of(&node, claim).ok_or_else(not_ready)?.is_built() {
        state.admission().admit().await?;
    }
    let node = state.shared_node(key, node);
    let peer = turn.client().peer;
    let presence = register(ports.registrar.as_deref(), &node, identity.as_ref(), peer).await?;
    if presence.is_some() {
        state.until(REGISTERED, |context| claimant::is_registered(&node, context)).await;
    }
    let connection = state.connect(node, identity, is_proven, peer, protocol).ok_or_else(not_ready)?;
    let view = connection.current_view();
    let ticks = view.subscribe();
    let seen = state.propagated_version();
    let (unknown_names, names) = (turn.unknown(), turn.names());
    let old_age = xds::old_age(state.options(), turn.client(), connection.number);
    let mut stream = Stream {
        session: open_session(&state, protocol, connection.number, only),
        stalled: None,
        sent: 0,
        rate: turn.rate(),
        cost: NonZeroU32::MIN,
        outgoing: outgoing.clone(),
        state,
        connection,
        requests,
        only,
        view,
        ticks,
        seen,
        pushes: PerType::default(),
        unknown: UnknownTypes::default(),
        debug: ports.debug,
        questions: Questions::default(),
        presence,
        _certificate: certificate,
        secret_access: SecretAsking::of(ports.secret_access),
        turn,
        old_age,
        lapse,
        refusals: LogThrottle::of_stream(),
        unknown_names,
        names,
        _node_bytes: node_bytes,
        unknown_of: PerType::default(),
    };
    stream.receive(&first)?;
    Ok(stream)
}

fn open_session(state: &XdsState, protocol: Protocol, number: u64, only: Option<ResourceType>) -> Session {
    let session = Session::new(protocol, number as u32, state.options().refused_again, Instant::now().into_std());
    let session = session.sharing(state.lists());
    if only.is_some() { session.alone() } else { session }
}

/// The identity that a client proves: nothing of it is read before.
async fn prove(authenticator: Option<&Authenticator>, presented: Presented) -> Result<Proof, Status> {
    let Some(authenticator) = authenticator else { return Ok(Proof::default()) };
    authenticator.admit_to_xds(presented).await.map_err(|error| unauthenticated(&error))
}

/// Has a certificate issued for a client without an agent, and waits until it is in force: the resources of the client
/// depend on it.
async fn hold_certificate(
    state: &XdsState,
    ports: &Ports,
    node: &Node,
    proven: Option<&Identity>,
) -> Result<Option<IdentityHold>, Status> {
    let (Some(authority), Some(identity)) = (&ports.authority, proven) else { return Ok(None) };
    if !takes_certificate(&ProxyView::of_node(node)) {
        return Ok(None);
    }
    let hold = authority.hold(identity);
    let is_issued = |context: &PushContext| context.inputs.certificates.by_identity.contains_key(identity);
    state.until(REGISTERED, is_issued).await;
    if state.current().is_some_and(|published| is_issued(&published.context)) {
        Ok(Some(hold))
    } else {
        Err(Status::unavailable("the certificate of the workload is not issued yet"))
    }
}

/// The first request that asks for something: health may be told before.
async fn first_request(requests: &mut Requests, protocol: Protocol) -> Result<Bytes, Status> {
    for _ in 0..MOST_HEALTH_FIRST {
        let message = requests.next().await?.ok_or_else(|| Status::ok(""))?;
        if parse(protocol, &message)?.type_url != HEALTH {
            return Ok(message);
        }
    }
    Err(Status::invalid_argument("nothing was asked for"))
}

/// Registers the workload behind a proxy, where it asks for it.
async fn register(
    registrar: Option<&dyn Registrar>,
    node: &Arc<Node>,
    identity: Option<&Identity>,
    peer: Option<SocketAddr>,
) -> Result<Option<Box<dyn Presence>>, Status> {
    let Some(registrar) = registrar else { return Ok(None) };
    let arrival = Arrival { node: node.clone(), identity: identity.cloned(), peer, at: SystemTime::now() };
    Ok(registrar.arrive(arrival).await?)
}

pub(super) fn parse(protocol: Protocol, message: &[u8]) -> Result<Request<'_>, Status> {
    let request = match protocol {
        Protocol::Sotw => Request::sotw(message),
        Protocol::Delta => Request::delta(message),
    };
    request.map_err(refuse)
}

pub(super) fn refuse(error: RequestError) -> Status {
    match error {
        RequestError::TooMany { .. } => Status::resource_exhausted(error.to_string()),
        _ => Status::invalid_argument(error.to_string()),
    }
}
