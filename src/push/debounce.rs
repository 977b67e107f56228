//! The start of pushes: events are gathered until a quiet time has passed, at most for a set time, and at most one push is
//! built at a time (Istio's `debounce`).
//!
//! A machine without a clock: the owner tells the time with every call and calls [`Debounce::wake`] at the time that
//! [`Debounce::wake_at`] names.
//!
//! The adaptive rule waits for 10 ms of quiet after idleness and for up to 100 ms while pushes follow one another. It does not
//! wait for quiet that never comes: under steady churn a push starts 100 ms after its first event, and 500 ms where such
//! pushes follow one another. Only a storm, more events than [`STORM`] in that time, makes it wait longer where pushes are
//! dear: [`STORM_BUILDS`] times as long as the last one was built, up to `PILOT_DEBOUNCE_MAX`. Istio's fixed rule holds when
//! `PILOT_DEBOUNCE_AFTER` or `PILOT_DEBOUNCE_MAX` is set.

use std::time::{Duration, Instant};

use crate::model::{Features, PushRequest, Reason};

/// The quiet time that the adaptive rule begins with.
const ADAPTIVE_MIN: Duration = Duration::from_millis(10);
/// The quiet time that it grows to.
const ADAPTIVE_MAX: Duration = Duration::from_millis(100);
/// The longest time that the adaptive rule waits for quiet, to begin with.
const ADAPTIVE_WAIT: Duration = Duration::from_millis(100);
/// The longest time that it waits for quiet unless a storm goes on, and at least waits for in one.
const ADAPTIVE_WAIT_MAX: Duration = Duration::from_millis(500);
/// More events than this in one push are a storm: it pays to gather more of them.
const STORM: u32 = 1_000;
/// In a storm, pushes are built a fifth of the time at most.
const STORM_BUILDS: u32 = 4;
/// After this time without events the adaptive rule starts again from its first values.
const IDLE: Duration = Duration::from_secs(1);

/// Times that the debounce rule waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebounceSettings {
    /// Quiet time after the last event, to begin with.
    pub after: Duration,
    /// Quiet time that it may grow to, doubling with every push that follows another within a second; equal to `after` for
    /// a fixed rule.
    pub after_max: Duration,
    /// Longest time from the first event to the push; a fixed rule checks it when a quiet time ends.
    pub max: Duration,
    /// Longest time from the first event to the push while no storm goes on, to begin with and to grow to; `None` for a
    /// fixed rule.
    pub wait: Option<(Duration, Duration)>,
    /// Whether endpoint changes are gathered too; otherwise they are pushed at once, even while another push is built.
    pub endpoints: bool,
}

impl DebounceSettings {
    /// Istio's fixed rule when `PILOT_DEBOUNCE_AFTER` or `PILOT_DEBOUNCE_MAX` is set, or differs from its default; else the
    /// adaptive one.
    #[must_use]
    pub fn of(features: &Features, is_set: impl Fn(&str) -> bool) -> Self {
        let times = |f: &Features| (f.debounce_after, f.debounce_max);
        let fixed = is_set("PILOT_DEBOUNCE_AFTER")
            || is_set("PILOT_DEBOUNCE_MAX")
            || times(features) != times(&Features::default());
        let (after, after_max) =
            if fixed { (features.debounce_after, features.debounce_after) } else { (ADAPTIVE_MIN, ADAPTIVE_MAX) };
        let wait = (!fixed).then_some((ADAPTIVE_WAIT, ADAPTIVE_WAIT_MAX));
        Self { after, after_max, max: features.debounce_max, wait, endpoints: features.enable_eds_debounce }
    }
}

/// A push that is to be built now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// All events since the last push, merged.
    pub request: PushRequest,
    /// The number of these events.
    pub events: u32,
    /// The time from the first of them to now.
    pub waited: Duration,
    /// Whether it is the one push that is built at a time: [`Debounce::finished`] must be told of its end. False for
    /// endpoint changes that are not gathered.
    pub exclusive: bool,
}

#[derive(Debug)]
struct Pending {
    request: PushRequest,
    events: u32,
    first: Instant,
    last: Instant,
}

/// The state machine of the debounce.
#[derive(Debug)]
pub struct Debounce {
    settings: DebounceSettings,
    pending: Option<Pending>,
    building: bool,
    /// The time that the last push was built.
    build: Duration,
    timer: Option<Instant>,
    /// The quiet time in force.
    quiet: Duration,
    /// The longest wait in force.
    longest: Duration,
    last_event: Option<Instant>,
    last_push: Option<Instant>,
}

impl Debounce {
    /// Starts idle: no event waits, no push is built.
    #[must_use]
    pub fn new(settings: DebounceSettings) -> Self {
        Self {
            settings,
            pending: None,
            building: false,
            build: Duration::ZERO,
            timer: None,
            quiet: settings.after,
            longest: settings.wait.map_or(settings.max, |(begin, _)| begin),
            last_event: None,
            last_push: None,
        }
    }

    /// Takes an event. Returns a batch only for endpoint changes that are not gathered.
    pub fn event(&mut self, now: Instant, mut request: PushRequest) -> Option<Batch> {
        if request.reasons.is_empty() {
            request.reasons.insert(Reason::Unknown, 1);
        }
        if !self.settings.endpoints && request.endpoints_only() {
            return Some(Batch { request, events: 1, waited: Duration::ZERO, exclusive: false });
        }
        if self.last_event.is_none_or(|last| now.saturating_duration_since(last) >= IDLE) {
            self.quiet = self.settings.after;
            self.longest = self.settings.wait.map_or(self.settings.max, |(begin, _)| begin);
        }
        self.last_event = Some(now);
        match &mut self.pending {
            Some(pending) => {
                pending.request.merge(request);
                pending.events = pending.events.saturating_add(1);
                pending.last = now;
            }
            None => {
                self.timer = Some(now + self.quiet.min(self.longest));
                self.pending = Some(Pending { request, events: 1, first: now, last: now });
            }
        }
        None
    }

    /// The time for the next [`Debounce::wake`]; `None` for "not before another event".
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        self.timer
    }

    /// The wake time has come. Without effect when called too early, or while a push is built.
    pub fn wake(&mut self, now: Instant) -> Option<Batch> {
        if self.timer.is_none_or(|timer| now < timer) {
            return None;
        }
        self.timer = None;
        if self.building { None } else { self.push(now) }
    }

    /// The push that was built is done (or failed).
    pub fn finished(&mut self, now: Instant) -> Option<Batch> {
        self.building = false;
        self.build = self.last_push.map_or(Duration::ZERO, |begin| now.saturating_duration_since(begin));
        self.push(now)
    }

    /// The number of events that wait.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.pending.as_ref().map_or(0, |p| p.events)
    }

    /// A push that found no quiet lets the next one wait longer, a storm longer than other churn.
    fn adapt_wait(&mut self, is_quiet: bool, events: u32) {
        let Some((begin, end)) = self.settings.wait else { return };
        let end =
            if events >= STORM { (self.build * STORM_BUILDS).clamp(end, self.settings.max.max(end)) } else { end };
        self.longest = if is_quiet { begin } else { (self.longest * 2).min(end.max(begin)) };
    }

    fn push(&mut self, now: Instant) -> Option<Batch> {
        let pending = self.pending.take()?;
        let waited = now.saturating_duration_since(pending.first);
        let quiet = now.saturating_duration_since(pending.last);
        let is_quiet = quiet >= self.quiet;
        if waited < self.longest && !is_quiet {
            let end = pending.last + self.quiet;
            self.timer = Some(if self.settings.wait.is_some() { end.min(pending.first + self.longest) } else { end });
            self.pending = Some(pending);
            return None;
        }
        self.adapt_wait(is_quiet, pending.events);
        let follows = self.last_push.is_some_and(|last| now.saturating_duration_since(last) < IDLE);
        if follows {
            self.quiet = (self.quiet * 2).min(self.settings.after_max.max(self.settings.after));
        }
        self.last_push = Some(now);
        self.timer = None;
        self.building = true;
        Some(Batch { request: pending.request, events: pending.events, waited, exclusive: true })
    }
}

#[cfg(test)]
mod tests;
