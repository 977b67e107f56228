//! The memory of the dashboard: the state that its open pages share. It holds values; the dashboard makes them.

mod answers;

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::{runtime::Handle, sync::watch};

use self::answers::Answers;
use crate::{model::ConfigSnapshot, push::PushContext};

/// The memory that all pages share.
#[derive(Debug, Clone)]
pub struct Dashboard {
    inner: Arc<Shared>,
}

/// Its parts.
#[derive(Debug)]
pub(super) struct Shared {
    /// The runtime on which notices are made, while a page is open.
    pub(super) runtime: Handle,
    pub(super) notices: watch::Sender<Notice>,
    pub(super) open: Arc<Mutex<Open>>,
    pub(super) answers: Answers,
    /// The last analysis.
    pub(super) analysis: Mutex<Option<Analysed>>,
    /// The last drawing of a whole mesh, with the context that it is of.
    pub(super) graph: Mutex<Option<(Arc<PushContext>, Value)>>,
}

impl Dashboard {
    /// A dashboard whose notices are made on this runtime, while a page is open.
    #[must_use]
    pub fn on(runtime: &Handle) -> Self {
        let v = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let inner = Shared {
            runtime: runtime.clone(),
            notices: watch::Sender::new(Notice { v, fleet: v, config: v, sources: v, closing: false }),
            open: Arc::default(),
            answers: Answers::default(),
            analysis: Mutex::default(),
            graph: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.inner
    }
}

/// The numbers of the last changes. A topic's number is that of the notice that it last changed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct Notice {
    /// Number of the notice; unlike those of an earlier process.
    pub(super) v: u64,
    /// Connections and their answers, and with them the pushes.
    pub(super) fleet: u64,
    /// Objects, services, endpoints.
    pub(super) config: u64,
    /// Reports of sources.
    pub(super) sources: u64,
    /// The server is shutting down: the last notice.
    pub(super) closing: bool,
}

/// The open streams of notices.
#[derive(Debug, Default)]
pub(super) struct Open {
    pub(super) streams: usize,
    pub(super) looking: bool,
}

/// An analysis, and the objects and the push that it is of.
#[derive(Debug, Clone)]
pub(super) struct Analysed {
    pub(super) of: Arc<ConfigSnapshot>,
    pub(super) push: u64,
    pub(super) ended: Instant,
    pub(super) took: Duration,
    pub(super) at: u64,
    pub(super) messages: Arc<Value>,
}
