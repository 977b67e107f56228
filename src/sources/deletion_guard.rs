//! Mass deletions are held back: a folder that is emptied by mistake should not take the mesh with it.
//!
//! A deletion is held when, with the deletions of the window before it, it takes more than half of the objects and more
//! than ten, or when it leaves no object. It takes effect when it is confirmed, when its time has passed, or when it has
//! shrunk below the limit. Pure: the caller brings the time.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Deletions up to this number are never a mass.
const FEW: usize = 10;
/// Deletions within this span count as one where a source sees absences only.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Numbers of objects that were seen this close together are one entry of the window.
const GRAIN: Duration = Duration::from_secs(1);

/// Decides which deletions take effect.
#[derive(Debug)]
pub struct MassDeletionGuard {
    hold: Duration,
    window: Duration,
    /// The number of objects before each deletion of the window, as far as later entries are not larger: the first is
    /// the largest number in the window.
    present: VecDeque<(Instant, usize)>,
    since: Option<Instant>,
    confirmed: bool,
}

impl MassDeletionGuard {
    /// A guard that holds for `hold`; zero allows every deletion.
    #[must_use]
    pub fn new(hold: Duration) -> Self {
        Self { hold, window: AT_ONCE, present: VecDeque::new(), since: None, confirmed: false }
    }

    /// Judges over this span in place of ten seconds.
    #[must_use]
    pub fn over(self, window: Duration) -> Self {
        Self { window, ..self }
    }

    /// Whether `deletions` of `present` objects may go through now. `emptied`: no object is left.
    pub fn allow(&mut self, deletions: usize, present: usize, emptied: bool, now: Instant) -> bool {
        while self.present.front().is_some_and(|(at, _)| now.duration_since(*at) > self.window) {
            self.present.pop_front();
        }
        let most = self.present.front().map_or(present, |(_, most)| present.max(*most));
        let gone = (most + deletions).saturating_sub(present);
        let mass = deletions > 0 && ((gone > FEW && gone * 2 > most) || emptied);
        if !mass || self.hold.is_zero() {
            self.since = None;
            self.confirmed = false;
            if deletions > 0 {
                self.remember(present, now);
            }
            return true;
        }
        let since = *self.since.get_or_insert(now);
        if !self.confirmed && now.duration_since(since) < self.hold {
            return false;
        }
        self.since = None;
        self.confirmed = false;
        self.present.clear();
        true
    }

    fn remember(&mut self, present: usize, now: Instant) {
        while self.present.back().is_some_and(|(_, earlier)| *earlier <= present) {
            self.present.pop_back();
        }
        if self.present.back().is_none_or(|(at, _)| now.duration_since(*at) > GRAIN) {
            self.present.push_back((now, present));
        }
    }

    /// Confirms the held deletion: the next question allows it.
    pub fn confirm(&mut self) {
        self.confirmed = self.since.is_some();
    }

    /// The time at which the held deletion takes effect without a confirmation.
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        self.since.map(|since| since + self.hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(600);

    #[test]
    fn few_and_minor_deletions_go_through() {
        let now = Instant::now();
        let mut guard = MassDeletionGuard::new(HOLD);
        assert!(guard.allow(10, 12, false, now));
        let later = now + AT_ONCE * 2;
        assert!(guard.allow(50, 100, false, later));
        assert!(guard.until().is_none());
    }

    #[test]
    fn a_mass_is_held_until_its_time_has_passed() {
        let now = Instant::now();
        let mut guard = MassDeletionGuard::new(HOLD);
        assert!(!guard.allow(11, 20, false, now));
        assert!(!guard.allow(11, 20, false, now + HOLD / 2));
        assert!(guard.allow(11, 20, false, now + HOLD));
        assert!(guard.until().is_none());
    }

    #[test]
    fn a_mass_in_small_bites_is_a_mass() {
        let now = Instant::now();
        let mut guard = MassDeletionGuard::new(HOLD);
        assert!(guard.allow(8, 20, false, now));
        assert!(!guard.allow(8, 12, false, now + Duration::from_secs(1)));
    }

    #[test]
    fn files_that_go_one_after_another_are_judged_against_the_beginning() {
        let (now, mut present) = (Instant::now(), 200);
        let mut guard = MassDeletionGuard::new(HOLD).over(HOLD);
        let mut held = 0;
        for file in 0..20 {
            held += 10;
            if guard.allow(held, present, false, now + Duration::from_millis(1500) * file) {
                present -= held;
                held = 0;
            }
        }
        assert_eq!(present, 100, "half of the objects of the beginning stays");
        assert!(guard.until().is_some());
    }

    #[test]
    fn deletions_are_forgotten_after_the_window() {
        let now = Instant::now();
        let mut guard = MassDeletionGuard::new(HOLD).over(HOLD);
        assert!(guard.allow(50, 100, false, now));
        assert!(guard.allow(20, 50, false, now + HOLD * 2));
        for second in 0..100_000 {
            assert!(guard.allow(1, 1_000_000 - second as usize, false, now + HOLD * 3 + Duration::from_millis(second)));
        }
        assert!(guard.present.len() < 200, "{}", guard.present.len());
    }

    #[test]
    fn deletions_that_were_made_up_for_do_not_count() {
        let now = Instant::now();
        let mut guard = MassDeletionGuard::new(HOLD);
        for _ in 0..10 {
            assert!(guard.allow(8, 20, false, now));
        }
    }

    #[test]
    fn a_confirmation_counts_for_the_held_one_only() {
        let now = Instant::now();
        let mut guard = MassDeletionGuard::new(HOLD);
        guard.confirm();
        assert!(!guard.allow(20, 20, false, now));
        guard.confirm();
        assert!(guard.allow(20, 20, false, now));
        assert!(!guard.allow(20, 20, false, now));
    }

    #[test]
    fn the_last_object_is_held_and_istios_way_holds_nothing() {
        let now = Instant::now();
        assert!(!MassDeletionGuard::new(HOLD).allow(1, 1, true, now));
        assert!(MassDeletionGuard::new(Duration::ZERO).allow(1000, 1000, true, now));
    }
}
