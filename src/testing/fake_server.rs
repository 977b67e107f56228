//! An xDS server with made-up resources.

use std::{borrow::Cow, collections::BTreeMap, net::SocketAddr, sync::Arc};

use parking_lot::{Condvar, Mutex};
use tokio_util::sync::CancellationToken;

use super::Content;
use crate::{
    discovery::{self, Affected, Audience, Claim, Generator, Layout, Part, Ports, Slot, XdsState},
    model::{MovedNodes, Node, PushRequest, Reason},
    proto::{from_json, wkt},
    push::{Change, PushContext, context::PushInputs},
    xds::{self, Resource, ResourceType, TypeSet, XdsOptions},
};

/// Resources that a test sets.
#[derive(Debug, Default)]
pub struct FakeGenerator {
    content: Mutex<BTreeMap<ResourceType, Content>>,
    held: Mutex<bool>,
    released: Condvar,
}

impl FakeGenerator {
    fn change(&self, change: impl FnOnce(&mut BTreeMap<ResourceType, Content>)) {
        change(&mut self.content.lock());
    }

    fn content(&self, kind: ResourceType) -> Content {
        self.content.lock().get(&kind).cloned().unwrap_or_default()
    }

    /// The text of an `Any` of [`FakeServer`], as `name=text`.
    #[must_use]
    pub fn read(any: &wkt::Any) -> (String, String) {
        let text = String::from_utf8_lossy(&any.value).into_owned();
        text.split_once('=').map_or_else(Default::default, |(name, text)| (name.to_string(), text.to_string()))
    }
}

fn resource(kind: ResourceType, name: &str, text: &str) -> Arc<Resource> {
    assert!(text != "panic", "asked to panic");
    if let Some(bytes) = text.strip_prefix("raw ") {
        return Arc::new(Resource::of_parts(name, kind.url(), bytes.as_bytes()));
    }
    // A message as JSON stands for itself.
    if text.starts_with('{') {
        let message: wkt::Any =
            serde_json::from_str(text).ok().and_then(|json| from_json(&json, true).ok()).unwrap_or_default();
        return Arc::new(Resource::of_parts(name, &message.type_url, &message.value));
    }
    Arc::new(Resource::of_parts(name, kind.url(), format!("{name}={text}").as_bytes()))
}

impl Generator for FakeGenerator {
    fn audience(&self, context: &PushContext, node: &Node, claim: Claim<'_>) -> Audience {
        let own = Arc::new(context.view_of(node));
        Audience::new(own.clone(), own.clone(), own, claim.identity.cloned())
    }

    fn layout(&self, _: &Slot, kind: ResourceType) -> Layout {
        Layout { parts: &[Part::Own], listed: kind.is_wildcard() }
    }

    fn list(&self, _: &PushContext, _: &Slot, kind: ResourceType) -> Vec<Arc<Resource>> {
        self.content(kind).iter().map(|(name, text)| resource(kind, name, text)).collect()
    }

    fn named(&self, _: &PushContext, _: &Slot, kind: ResourceType, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let content = self.content(kind);
        names.iter().filter_map(|name| Some(resource(kind, name, content.get(&**name)?))).collect()
    }

    fn affects<'a>(&self, _: &Change<'_>, _: &Slot) -> Affected<'a> {
        self.released.wait_while(&mut self.held.lock(), |held| *held);
        Affected::whole(TypeSet::ALL)
    }

    fn moves<'a>(&self, _: &'a Change<'_>) -> Cow<'a, MovedNodes> {
        Cow::Owned(MovedNodes::default())
    }
}

/// A server of [`FakeGenerator`] on a free port.
#[derive(Debug)]
pub struct FakeServer {
    /// Address that it listens on.
    pub address: SocketAddr,
    /// State of the xDS server.
    pub state: XdsState,
    generator: Arc<FakeGenerator>,
    shutdown: CancellationToken,
}

impl FakeServer {
    /// Starts a server that is ready and has no resources.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(options: XdsOptions) -> std::io::Result<Self> {
        let server = Self::start_unready(options).await?;
        server.set(&[]);
        Ok(server)
    }

    /// Starts a server without a first publication.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start_unready(options: XdsOptions) -> std::io::Result<Self> {
        Self::start_with(options, Ports::default()).await
    }

    /// Starts a server that nothing was published to, with other rooms behind it.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start_with(options: XdsOptions, ports: Ports) -> std::io::Result<Self> {
        let generator = Arc::new(FakeGenerator::default());
        let state = XdsState::new(generator.clone(), options);
        let listener = xds::listen("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shutdown = CancellationToken::new();
        tokio::spawn(discovery::serve(listener.into(), state.clone(), ports, shutdown.clone()));
        Ok(Self { address, state, generator, shutdown })
    }

    /// Holds publications of changes, or releases them: they are in force, and the affected views are not marked yet.
    pub fn hold(&self, held: bool) {
        *self.generator.held.lock() = held;
        self.generator.released.notify_all();
    }

    /// Sets resources (`None` removes one) and publishes them as one change of everything. A text that begins with `{` is a
    /// message as JSON, one that begins with `raw ` the bytes of a message.
    pub fn set(&self, changes: &[(ResourceType, &str, Option<&str>)]) {
        self.set_by(changes, &PushRequest::everything(Reason::Config));
    }

    /// Sets resources (`None` removes one) and publishes them as this change.
    pub fn set_by(&self, changes: &[(ResourceType, &str, Option<&str>)], request: &PushRequest) {
        self.generator.change(|content| {
            for (kind, name, text) in changes {
                let of_kind = content.entry(*kind).or_default();
                match text {
                    Some(text) => of_kind.insert((*name).to_string(), (*text).to_string()),
                    None => of_kind.remove(*name),
                };
            }
        });
        let context = Arc::new(PushContext::build(PushInputs::default()));
        self.state.publish(context, request);
    }

    /// Begins the shutdown.
    pub fn shut_down(&self) {
        self.shutdown.cancel();
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
