//! The schedule against a model, and the task against a scripted server.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};
use proptest::prelude::*;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Demand, Poll, PollRules, PolledSource, PolledTable, Taken};
use crate::{
    model::Interrupted,
    sources::{Applied, ConfigSink, Source, SourceBatch, SourceBoard, SourcePort, SourceState},
};

const DEADLINE: Duration = Duration::from_secs(60);

/// Numbers by number, within a sum.
#[derive(Debug)]
struct Numbers {
    longest_retry: Duration,
}

impl PollRules for Numbers {
    type Key = u8;
    type Terms = ();
    type Answer = Result<(u8, Duration), String>;
    type Held = Option<u8>;
    type Value = u8;

    const SOURCE: &'static str = "numbers";
    const KEYS: &'static str = "numbers";
    const POLLED: &'static str = "polled";
    const MOST_KEYS: usize = 4;
    const MOST_BYTES: usize = 300;

    fn take(&self, held: &mut Option<u8>, answer: Self::Answer, room: usize, _: Instant) -> Taken {
        match answer {
            Ok((number, pause)) if usize::from(number) <= room => {
                Taken { changed: held.replace(number) != Some(number), next: Ok(pause) }
            }
            Ok(_) => Taken { changed: false, next: Err("no room".into()) },
            Err(error) => Taken { changed: false, next: Err(error) },
        }
    }

    fn longest_retry(&self) -> Duration {
        self.longest_retry
    }

    fn value(held: &Option<u8>) -> Option<u8> {
        *held
    }

    fn bytes(held: &Option<u8>) -> usize {
        held.map_or(0, usize::from)
    }

    fn text(_: &u8) -> &'static str {
        "number"
    }

    fn log(_: &u8, _: &str, _: bool) {}
}

#[derive(Debug, Clone)]
enum Event {
    Demand(Vec<u8>),
    Poll,
    /// An answer for a key, which need not be in demand.
    Answer(u8, Option<u8>),
    Interrupt,
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => prop::collection::vec(0..8u8, 0..7).prop_map(Event::Demand),
        4 => Just(Event::Poll),
        4 => (0..8u8, prop::option::of(any::<u8>())).prop_map(|(key, number)| Event::Answer(key, number)),
        1 => Just(Event::Interrupt),
        2 => (0..40_000u64).prop_map(Event::Pass),
    ]
}

/// One key of the model: its value, the time at which it is due unless its poll is under way, and its failures in a row.
#[derive(Debug, Clone, Default)]
struct Expected {
    value: Option<u8>,
    due: Option<Instant>,
    failures: u32,
    answered: bool,
}

proptest! {
    #[test]
    fn the_schedule_is_that_of_a_model(events in prop::collection::vec(event(), 0..80)) {
        let longest_retry = Duration::from_secs(30);
        let mut table = PolledTable::new(Numbers { longest_retry });
        let mut model: BTreeMap<u8, Expected> = BTreeMap::new();
        let mut now = Instant::now();
        for event in events {
            match event {
                Event::Demand(keys) => {
                    let keys: BTreeMap<u8, ()> = keys.into_iter().map(|key| (key, ())).collect();
                    let first: Vec<u8> = keys.keys().copied().take(Numbers::MOST_KEYS).collect();
                    let lost = model.iter().any(|(key, e)| !first.contains(key) && e.value.is_some());
                    model.retain(|key, _| first.contains(key));
                    for key in first {
                        model.entry(key).or_insert(Expected { due: Some(now), ..Expected::default() });
                    }
                    prop_assert_eq!(table.demand(&keys, now), lost);
                    prop_assert_eq!(table.left_out(), keys.len() - model.len());
                }
                Event::Poll => {
                    let due = model.iter_mut().find(|(_, e)| e.due.is_some_and(|at| at <= now));
                    let due = due.map(|(key, e)| { e.due = None; *key });
                    prop_assert_eq!(table.poll_next(now).map(|(key, ())| key), due);
                }
                Event::Answer(key, number) => {
                    let others: usize = model.iter().filter(|(k, _)| **k != key).map(|(_, e)| Numbers::bytes(&e.value)).sum();
                    let mut changed = false;
                    if let Some(e) = model.get_mut(&key) {
                        e.answered = true;
                        match number.filter(|n| others + usize::from(*n) <= Numbers::MOST_BYTES) {
                            Some(n) => {
                                changed = e.value != Some(n);
                                (e.value, e.failures) = (Some(n), 0);
                                e.due = Some(now + Duration::from_secs(n.into()));
                            }
                            None => {
                                e.due = Some(now + Duration::from_secs(1 << e.failures.min(16)).min(longest_retry));
                                e.failures += 1;
                            }
                        }
                    }
                    let answer = number.map(|n| (n, Duration::from_secs(n.into()))).ok_or_else(|| "down".to_string());
                    prop_assert_eq!(table.answered(&key, answer, now), changed);
                }
                Event::Interrupt => {
                    table.interrupted(now);
                    model.values_mut().for_each(|e| e.due = e.due.or(Some(now)));
                }
                Event::Pass(milliseconds) => now += Duration::from_millis(milliseconds),
            }
            let values: BTreeMap<u8, u8> = model.iter().filter_map(|(key, e)| Some((*key, e.value?))).collect();
            let failing: Vec<u8> = model.iter().filter(|(_, e)| e.failures > 0).map(|(key, _)| *key).collect();
            prop_assert_eq!(table.values(), values);
            prop_assert_eq!(table.wake_at(), model.values().filter_map(|e| e.due).min());
            prop_assert_eq!(table.problems().into_keys().collect::<Vec<_>>(), failing);
            prop_assert_eq!(table.is_answered(), model.values().all(|e| e.answered));
        }
    }
}

/// Answers each poll with the next line of a script, the last one again and again.
struct Script(Mutex<VecDeque<Result<(u8, Duration), String>>>);

impl Poll<Numbers> for Script {
    fn poll(&self, _: &u8, (): &()) -> BoxFuture<'static, <Numbers as PollRules>::Answer> {
        let mut script = self.0.lock().unwrap();
        let next = if script.len() > 1 { script.pop_front() } else { script.front().cloned() };
        async move { next.unwrap() }.boxed()
    }
}

struct NoObjects;

impl ConfigSink for NoObjects {
    fn apply(&self, _: SourceBatch) -> BoxFuture<'static, Result<Applied, Interrupted>> {
        unreachable!("a polled source has no objects")
    }
}

#[tokio::test]
async fn values_are_handed_over_when_they_change_and_stay_through_failures() {
    let soon = Duration::from_millis(5);
    let script = [Ok((1, soon)), Err("down".to_string()), Ok((1, soon)), Ok((2, soon)), Err("gone".to_string())];
    let (demand, level) = watch::channel(0);
    let keys = demand.subscribe();
    let read = move || if *keys.borrow() == 1 { BTreeMap::from([(7, ())]) } else { BTreeMap::new() };
    let (told, mut handed) = mpsc::unbounded_channel();
    let source = PolledSource::new(
        Numbers { longest_retry: soon },
        Demand { level, read: Box::new(read) },
        Script(Mutex::new(script.into())),
        move |values| told.send(Arc::unwrap_or_clone(values)).unwrap(),
    );
    let port = SourcePort {
        sink: Arc::new(NoObjects),
        board: Arc::new(SourceBoard::new(source.id())),
        stop: CancellationToken::new(),
        resync: Arc::new(Notify::new()),
        confirm: Arc::new(Notify::new()),
    };
    let (board, stop, mut answered) = (port.board.clone(), port.stop.clone(), source.answered());
    let running = tokio::spawn(source.run(port));
    let story = async {
        board.until(|r| r.state == SourceState::Synced).await;
        demand.send_replace(1);
        assert_eq!(handed.recv().await, Some(BTreeMap::from([(7, 1)])));
        answered.wait_for(|level| *level == 1).await.unwrap();
        assert_eq!(handed.recv().await, Some(BTreeMap::from([(7, 2)])), "an equal value is no change");
        board.until(|r| r.state == SourceState::Stale && r.objects == 1 && r.last_error == "number: gone").await;
        demand.send_replace(2);
        assert_eq!(handed.recv().await, Some(BTreeMap::new()));
        board.until(|r| r.state == SourceState::Synced && r.objects == 0).await;
        stop.cancel();
        running.await.unwrap().unwrap();
    };
    tokio::time::timeout(DEADLINE, story).await.unwrap();
    assert!(handed.try_recv().is_err(), "nothing else was handed over");
}
