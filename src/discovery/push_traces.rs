//! Pushes that are traced: each is followed from its publication until it is over, and then exported as a trace.
//!
//! Invariants: a bounded number of pushes is followed; nothing here waits for the collector.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::history::PushRecord;
use crate::telemetry::TraceQueue;

/// Pushes that are followed at the same time. The oldest one is exported early when there are more.
const MOST_FOLLOWED: usize = 64;
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// The pushes that are followed.
#[derive(Debug)]
pub struct PushTraces {
    queue: TraceQueue,
    followed: Mutex<VecDeque<Arc<PushRecord>>>,
}

impl PushTraces {
    /// Traces for this queue.
    #[must_use]
    pub fn new(queue: TraceQueue) -> Arc<Self> {
        Arc::new(Self { queue, followed: Mutex::default() })
    }

    pub(super) fn follow(&self, record: Arc<PushRecord>) {
        let early = {
            let mut followed = self.followed.lock();
            followed.push_back(record);
            if followed.len() > MOST_FOLLOWED { followed.pop_front() } else { None }
        };
        if let Some(trace) = early.and_then(|record| record.take_trace(Instant::now(), true)) {
            self.queue.offer(trace);
        }
    }

    /// Exports the pushes that are over, or all of them.
    fn look(&self, all: bool) {
        let followed: Vec<Arc<PushRecord>> = self.followed.lock().iter().cloned().collect();
        for record in followed {
            record.look_up_causes();
            if let Some(trace) = record.take_trace(Instant::now(), all) {
                self.queue.offer(trace);
                self.followed.lock().retain(|other| !Arc::ptr_eq(other, &record));
            }
        }
    }

    /// Exports each push when it is over, until `stop`, and then those that are left.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
            self.look(false);
        }
        self.look(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        discovery::{MeshGenerator, XdsState},
        model::{Kind, PushKey, PushRequest, Reason, push_request::PushKind},
        push::{PushContext, context::PushInputs},
        xds::XdsOptions,
    };

    #[test]
    fn each_push_is_one_trace_and_a_bounded_number_is_followed() {
        let (queue, mut exported) = TraceQueue::for_test(10_000);
        let traces = PushTraces::new(queue);
        let generator = Arc::new(MeshGenerator::default());
        let state = XdsState::with_owner(generator, XdsOptions::default(), None, Some(traces.clone()));
        let publish = |name: &str| {
            let key =
                PushKey { kind: PushKind::Config(Kind::VirtualService), name: name.into(), namespace: "shop".into() };
            let context = Arc::new(PushContext::build(PushInputs::default()));
            state.publish(context, &PushRequest::of(key, Reason::Config));
        };
        (0..MOST_FOLLOWED + 6).for_each(|number| publish(&number.to_string()));
        let mut taken = || std::iter::from_fn(|| exported.try_recv().ok()).collect::<Vec<_>>();
        let early = taken();
        assert_eq!(early.len(), 6, "the oldest ones");
        let name =
            early[0].span.attributes.as_ref().unwrap().iter().find(|a| a.key.as_str() == "pilothouse.object.name");
        assert_eq!(name.unwrap().value.to_string(), "0");
        traces.look(false);
        assert_eq!(taken().len(), 0, "nothing is over at once");
        traces.look(true);
        assert_eq!(taken().len(), MOST_FOLLOWED);
        traces.look(true);
        assert_eq!(taken().len(), 0);
        // What happens after the end belongs to no trace.
        state.current().unwrap().record.acked(1, crate::xds::ResourceType::Cluster);
        assert_eq!(state.current().unwrap().record.event().acked, 1);
    }
}
