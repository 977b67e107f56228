//! Tests of the debounce machine in virtual time: Istio's table, the adaptive rule, and properties.

use std::{collections::BTreeMap, sync::LazyLock};

use proptest::prelude::*;

use super::*;
use crate::model::{Kind, PushKey, PushKind};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn at(ms: u64) -> Instant {
    *START + Duration::from_millis(ms)
}

fn request(endpoints: bool, name: u64) -> PushRequest {
    let kind = if endpoints { PushKind::Endpoints } else { PushKind::Config(Kind::VirtualService) };
    let key = PushKey { kind, name: name.to_string().as_str().into(), namespace: "x".into() };
    PushRequest { start: at(0), ..PushRequest::of(key, Reason::Config) }
}

/// Istio's test values: 50 ms quiet, 100 ms at most, endpoint changes at once.
fn istio() -> DebounceSettings {
    let ms = Duration::from_millis;
    DebounceSettings { after: ms(50), after_max: ms(50), max: ms(100), wait: None, endpoints: false }
}

fn adaptive() -> DebounceSettings {
    DebounceSettings::of(&Features::default(), |_| false)
}

/// Plays events `(time, endpoints only)` against pushes that take `build` ms; gives the start times of full pushes with
/// their numbers of events, and the number of endpoint pushes.
fn play(settings: DebounceSettings, events: &[(u64, bool)], build: u64) -> (Vec<(u64, u32)>, usize) {
    let mut machine = Debounce::new(settings);
    let (mut full, mut partial, mut done_at) = (Vec::new(), 0, None);
    let mut events = events.iter().copied().peekable();
    for ms in 0..20_000 {
        let mut batches = Vec::new();
        if done_at == Some(ms) {
            done_at = None;
            batches.extend(machine.finished(at(ms)));
        }
        while let Some((_, endpoints)) = events.next_if(|(time, _)| *time == ms) {
            batches.extend(machine.event(at(ms), request(endpoints, ms)));
        }
        batches.extend(machine.wake(at(ms)));
        for batch in batches {
            if batch.exclusive {
                assert_eq!(done_at, None, "two pushes at the same time");
                full.push((ms, batch.events));
                done_at = Some(ms + build);
            } else {
                partial += 1;
            }
        }
    }
    assert_eq!(machine.waiting(), 0, "something was never pushed");
    (full, partial)
}

#[test]
fn istio_table() {
    let each = |times: &[u64], endpoints: bool| times.iter().map(|t| (*t, endpoints)).collect::<Vec<_>>();
    assert_eq!(play(istio(), &each(&[0, 10, 20, 30, 40], true), 200), (vec![], 5));
    assert_eq!(play(istio(), &each(&[0], false), 200), (vec![(50, 1)], 0));
    assert_eq!(play(istio(), &each(&[0, 0], false), 200), (vec![(50, 2)], 0));
    let mixed = [(0, false), (0, false), (0, true), (0, true), (60, true)];
    assert_eq!(play(istio(), &mixed, 200), (vec![(50, 2)], 3));
    let steady = each(&[0, 25, 50, 75, 99], false);
    assert_eq!(play(istio(), &steady, 200), (vec![(100, 5)], 0));
    assert_eq!(play(istio(), &each(&[0, 60], false), 200), (vec![(50, 1), (250, 1)], 0));
}

#[test]
fn the_adaptive_rule_is_quick_after_idleness_and_slows_under_churn() {
    let starts = |events: &[u64]| {
        let events: Vec<_> = events.iter().map(|t| (*t, false)).collect();
        play(adaptive(), &events, 1).0.into_iter().map(|(start, _)| start).collect::<Vec<_>>()
    };
    assert_eq!(starts(&[0]), [10]);
    assert_eq!(starts(&[0, 200, 400, 600, 800, 1000]), [10, 210, 420, 640, 880, 1100]);
    assert_eq!(starts(&[0, 200, 400, 3000]), [10, 210, 420, 3010]);
}

/// Endless endpoint changes delay a route by half a second at most, where the fixed rule waits for ten.
#[test]
fn steady_churn_starves_nothing() {
    let longest = |settings: DebounceSettings, every: u64| {
        let events: Vec<_> = (0..6_000 / every).map(|n| (n * every, true)).collect();
        let (pushes, _) = play(DebounceSettings { endpoints: true, ..settings }, &events, 20);
        let mut left = events.as_slice();
        let mut longest = 0;
        for (start, n) in pushes {
            let (batch, rest) = left.split_at(n as usize);
            longest = longest.max(start - batch[0].0);
            left = rest;
        }
        longest
    };
    let fixed = DebounceSettings::of(&Features::default(), |_| true);
    for every in [3, 10, 33, 50, 90] {
        assert!(longest(adaptive(), every) <= 520, "an event each {every} ms");
        assert!(longest(fixed, every) > 5_000, "an event each {every} ms, by the fixed rule");
    }
}

/// Thousands of events in half a second are gathered for longer where pushes are dear, and not where they are cheap; when the
/// storm is over, a change is out at once again.
#[test]
fn only_a_storm_of_dear_pushes_waits() {
    let storm = (0..8_000).flat_map(|ms| [(ms, false); 4]);
    let events: Vec<_> = storm.chain([(12_000, false)]).collect();
    let starts = |build| {
        let (pushes, _) = play(adaptive(), &events, build);
        pushes.iter().map(|(start, _)| *start).collect::<Vec<u64>>()
    };
    let (cheap, dear) = (starts(20), starts(400));
    assert!(cheap.windows(2).all(|pair| pair[1] - pair[0] <= 520 || pair[1] == 12_010), "{cheap:?}");
    assert!(dear.len() <= 9, "few pushes: {dear:?}");
    assert_eq!((cheap.last(), dear.last()), (Some(&12_010), Some(&12_010)));
}

#[test]
fn the_fixed_rule_holds_when_its_variables_are_set() {
    let fixed = DebounceSettings::of(&Features::default(), |name| name == "PILOT_DEBOUNCE_MAX");
    assert_eq!((fixed.after, fixed.after_max), (Duration::from_millis(100), Duration::from_millis(100)));
}

#[test]
fn an_event_without_reason_gets_one() {
    let mut machine = Debounce::new(istio());
    let bare = PushRequest { reasons: BTreeMap::new(), ..request(true, 0) };
    let batch = machine.event(at(0), bare).expect("an endpoint push");
    assert_eq!(batch.request.reasons, BTreeMap::from([(Reason::Unknown, 1)]));
}

proptest! {
    #[test]
    fn every_event_is_pushed_once_and_soon(
        times in proptest::collection::vec(0u64..3000, 1..60),
        build in 1u64..300,
        is_adaptive: bool,
    ) {
        let mut times = times;
        times.sort_unstable();
        let settings = if is_adaptive { adaptive() } else { istio() };
        let events: Vec<_> = times.iter().map(|t| (*t, false)).collect();
        let (pushes, _) = play(settings, &events, build);
        prop_assert_eq!(pushes.iter().map(|(_, n)| *n as usize).sum::<usize>(), times.len());
        let longest = settings.max + settings.after_max + Duration::from_millis(build);
        let mut left = times.as_slice();
        for (start, n) in pushes {
            let (batch, rest) = left.split_at(n as usize);
            prop_assert!(batch.iter().all(|t| *t <= start));
            prop_assert!(Duration::from_millis(start - batch[0]) <= longest);
            left = rest;
        }
    }
}
