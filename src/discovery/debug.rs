//! Debug pages over xDS (`istio.io/debug`), as `istioctl` asks for them: each request is answered once, and nothing is pushed.
//! A request is an acknowledgement only if its nonce is one of ours: `istioctl` writes the time there.
//!
//! Only clients with a proven identity are answered: those of the root namespace about everything, others about proxies of
//! their own namespace. The pages are those of `admin`; `app` joins the two.

use std::{collections::VecDeque, fmt, sync::Arc, time::Instant};

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use prost::Message;
use tokio::sync::Semaphore;
use tonic::Status;

use crate::{
    model::Identity,
    proto::{
        envoy::{config::core::v3 as core, service::discovery::v3 as discovery},
        wkt::Any,
    },
    push::PushContext,
    runtime::catch,
    xds::{
        Protocol,
        wire::{self, request::Request},
    },
};

/// The type of pages: the resource's name is the path after `/debug/` in a URL.
pub const PAGE: &str = "istio.io/debug";
/// The type of the proxies' states, each an `envoy.service.status.v3.ClientConfig`.
pub const SYNCZ: &str = "istio.io/debug/syncz";
/// The type of the sections of one proxy's config dump; the resource's name is the proxy's.
pub const CONFIG_DUMP: &str = "istio.io/debug/config_dump";

/// The generator that clients of debug pages name.
pub const GENERATOR: &str = "event";
/// The prefix of the nonces of answers.
const NONCE: &str = "debug-";
/// Questions that wait on one stream.
const MOST: usize = 16;
/// Pages about one proxy, which its own namespace may see.
pub const OF_PROXIES: [&str; 3] = ["config_dump", "ndsz", "edsz"];

/// The identities that see the debug pages of all namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DebugAudience {
    /// The root namespace; empty before it is known.
    pub(super) root: String,
    /// Further namespaces (`DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES`).
    pub(super) allowed: Vec<String>,
    /// Every identity does (`ENABLE_DEBUG_ENDPOINT_AUTH`).
    pub(super) all: bool,
}

impl DebugAudience {
    /// The audience that a mesh and its flags name.
    #[must_use]
    pub fn of(context: &PushContext) -> Self {
        let (features, mesh) = (context.features(), context.mesh());
        let allowed = features.debug_endpoint_auth_allowed_namespaces.split(',').map(str::trim);
        Self {
            root: mesh.config.root_namespace.clone(),
            allowed: allowed.filter(|namespace| !namespace.is_empty()).map(String::from).collect(),
            all: !features.enable_debug_endpoint_auth,
        }
    }

    /// The namespace whose proxies alone an identity may see; `None` where it sees all.
    #[must_use]
    pub fn limit(&self, identity: &Identity) -> Option<Arc<str>> {
        let namespace = &*identity.namespace;
        let sees_all = self.all || namespace == self.root || self.allowed.iter().any(|allowed| allowed == namespace);
        (!sees_all).then(|| identity.namespace.clone())
    }

    /// Whether an identity with this limit may ask for a page.
    #[must_use]
    pub fn may_ask(limit: Option<&str>, page: &str) -> bool {
        limit.is_none() || OF_PROXIES.contains(&page)
    }
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebugQuestion {
    /// One of the three types.
    pub type_url: String,
    /// The page with its query, or the proxy; empty when none was named.
    pub name: String,
    /// Only proxies of this namespace may be shown.
    pub namespace: Option<Arc<str>>,
}

/// Answers questions: resources with their names.
pub trait DebugPages: Send + Sync + 'static {
    /// The resources; none when there is no such page or proxy.
    fn answer(&self, question: DebugQuestion) -> BoxFuture<'static, Vec<(String, Any)>>;

    /// This process, as `ControlPlane.identifier` names it: clients that ask several replicas tell them apart by it.
    fn control_plane(&self) -> String;
}

impl fmt::Debug for dyn DebugPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DebugPages")
    }
}

/// Answers one question at a time, beside the work: on a thread of its own, and no more than half of the time.
#[derive(Debug)]
pub(super) struct DebugThrottle(Arc<Semaphore>);

impl Default for DebugThrottle {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl DebugThrottle {
    /// The answer of these pages; nothing when they fail.
    pub(super) async fn answer(&self, pages: Arc<dyn DebugPages>, question: DebugQuestion) -> Vec<(String, Any)> {
        let Ok(turn) = self.0.clone().acquire_owned().await else { return Vec::new() };
        let runtime = tokio::runtime::Handle::current();
        let work = move || {
            let start = Instant::now();
            let answer = catch(|| runtime.block_on(pages.answer(question)));
            let pause = start.elapsed();
            runtime.spawn(async move {
                tokio::time::sleep(pause).await;
                drop(turn);
            });
            answer.unwrap_or_default()
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_default()
    }
}

/// The questions of one stream.
#[derive(Debug, Default)]
pub(super) struct Questions {
    waiting: VecDeque<DebugQuestion>,
    answered: u64,
}

/// Whether a type is one of debug.
pub(super) fn is_debug(type_url: &str) -> bool {
    matches!(type_url, PAGE | SYNCZ | CONFIG_DUMP)
}

impl Questions {
    /// Takes a request. One that acknowledges an answer asks nothing.
    ///
    /// # Errors
    /// When the client may not ask this.
    pub(super) fn ask(
        &mut self,
        request: &Request<'_>,
        identity: Option<&Identity>,
        audience: &DebugAudience,
    ) -> Result<(), Status> {
        let identity = identity.ok_or_else(|| Status::unauthenticated("debug pages need an authenticated client"))?;
        if self.is_own(request.nonce) {
            return Ok(());
        }
        let names = request.names.parse().map_err(|e| Status::invalid_argument(e.to_string()))?;
        let name = match (request.type_url, names.as_slice()) {
            (SYNCZ, _) => String::new(),
            (_, [name]) => name.to_string(),
            _ => return Err(Status::invalid_argument("name exactly one page or proxy")),
        };
        let namespace = audience.limit(identity);
        let page = name.split('?').next().unwrap_or_default();
        if request.type_url == PAGE && !DebugAudience::may_ask(namespace.as_deref(), page) {
            return Err(Status::permission_denied(format!("{page} is for the namespace {} only", audience.root)));
        }
        if self.waiting.len() == MOST {
            return Err(Status::resource_exhausted("too many debug requests at once"));
        }
        self.waiting.push_back(DebugQuestion { type_url: request.type_url.to_string(), name, namespace });
        Ok(())
    }

    /// Whether this is the nonce of an answer.
    fn is_own(&self, nonce: &[u8]) -> bool {
        let number =
            nonce.strip_prefix(NONCE.as_bytes()).and_then(|n| std::str::from_utf8(n).ok()?.parse::<u64>().ok());
        number.is_some_and(|number| (1..=self.answered).contains(&number))
    }

    /// Whether an answer is owed.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next question.
    pub(super) fn next(&mut self) -> Option<DebugQuestion> {
        self.waiting.pop_front()
    }

    /// The pieces of an answer.
    pub(super) fn frames(
        &mut self,
        protocol: Protocol,
        type_url: String,
        resources: Vec<(String, Any)>,
        control_plane: String,
    ) -> (Bytes, Option<Bytes>) {
        self.answered += 1;
        let nonce = format!("{NONCE}{}", self.answered);
        let control_plane = Some(core::ControlPlane { identifier: control_plane });
        let version = self.answered.to_string();
        let body = match protocol {
            Protocol::Sotw => discovery::DiscoveryResponse {
                version_info: version,
                type_url,
                nonce,
                control_plane,
                resources: resources.into_iter().map(|(_, any)| any).collect(),
                ..Default::default()
            }
            .encode_to_vec(),
            Protocol::Delta => {
                let named = |(name, any)| discovery::Resource { name, resource: Some(any), ..Default::default() };
                discovery::DeltaDiscoveryResponse {
                    system_version_info: version,
                    type_url,
                    nonce,
                    control_plane,
                    resources: resources.into_iter().map(named).collect(),
                    ..Default::default()
                }
                .encode_to_vec()
            }
        };
        wire::grpc_frames(&BytesMut::new(), body.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audience() -> DebugAudience {
        DebugAudience { root: "istio-system".to_string(), allowed: vec!["tools".to_string()], all: false }
    }

    fn ask(namespace: &str, type_url: &str, names: &[&str]) -> Result<Option<DebugQuestion>, tonic::Code> {
        let message = discovery::DiscoveryRequest {
            type_url: type_url.to_string(),
            resource_names: names.iter().map(ToString::to_string).collect(),
            ..Default::default()
        }
        .encode_to_vec();
        let identity = Identity {
            trust_domain: "cluster.local".into(),
            namespace: namespace.into(),
            service_account: "default".into(),
        };
        let identity = Some(identity).filter(|_| !namespace.is_empty());
        let mut questions = Questions::default();
        let request = Request::sotw(&message).unwrap();
        questions.ask(&request, identity.as_ref(), &audience()).map_err(|s| s.code())?;
        Ok(questions.next())
    }

    #[test]
    fn access_to_debug_types_by_client() {
        let root = ask("istio-system", PAGE, &["queuez"]).unwrap().unwrap();
        assert_eq!((root.name.as_str(), root.namespace), ("queuez", None));
        assert_eq!(ask("tools", PAGE, &["queuez"]).unwrap().unwrap().namespace, None);
        let own = ask("shop", PAGE, &["config_dump?proxyID=a.shop"]).unwrap().unwrap();
        assert_eq!(own.namespace.as_deref(), Some("shop"));
        assert!(ask("shop", SYNCZ, &[]).unwrap().unwrap().namespace.is_some());
        assert_eq!(ask("shop", PAGE, &["queuez"]), Err(tonic::Code::PermissionDenied));
        assert_eq!(ask("", SYNCZ, &[]), Err(tonic::Code::Unauthenticated));
        assert_eq!(ask("istio-system", PAGE, &["a", "b"]), Err(tonic::Code::InvalidArgument));
    }

    #[test]
    fn only_a_nonce_of_ours_is_an_acknowledgement() {
        let identity = Identity {
            trust_domain: "cluster.local".into(),
            namespace: "istio-system".into(),
            service_account: "default".into(),
        };
        let mut questions = Questions::default();
        let asks = |questions: &mut Questions, nonce: &str| {
            let message = discovery::DiscoveryRequest {
                type_url: SYNCZ.into(),
                response_nonce: nonce.into(),
                ..Default::default()
            }
            .encode_to_vec();
            questions.ask(&Request::sotw(&message).unwrap(), Some(&identity), &audience()).unwrap();
            questions.next().is_some()
        };
        assert!(asks(&mut questions, "2026-11-22 08:00:00 +0000 UTC m=+0.07"), "as istioctl asks");
        let (head, body) = questions.frames(Protocol::Sotw, SYNCZ.into(), vec![], r#"{"ID":"me"}"#.into());
        let message = [&head[wire::PREFIX..], &body.unwrap_or_default()[..]].concat();
        let answer = discovery::DiscoveryResponse::decode(message.as_slice()).unwrap();
        assert_eq!(answer.control_plane.unwrap().identifier, r#"{"ID":"me"}"#);
        assert!(!asks(&mut questions, &answer.nonce));
        assert!(asks(&mut questions, "debug-2"), "no answer had this nonce");
    }
}
