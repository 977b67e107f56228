//! Mass deletions are held back: a folder that is emptied by mistake should not take the mesh with it.
//!
//! A deletion is held when it takes more than half of the objects and more than ten at once, or the last file of a folder.
//! It goes through when it is confirmed, when its time has passed, or when it has shrunk below the limit. Pure: the caller
//! brings the time.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Deletions up to this number are never a mass.
const FEW: usize = 10;
/// Deletions within this span count as one.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Decides which deletions go through.
#[derive(Debug)]
pub struct MassDeletionGuard {
    hold: Duration,
    recent: VecDeque<(Instant, usize)>,
    since: Option<Instant>,
    confirmed: bool,
}

impl MassDeletionGuard {
    /// A guard that holds for `hold`; zero lets everything through.
    #[must_use]
    pub fn new(hold: Duration) -> Self {
        Self { hold, recent: VecDeque::new(), since: None, confirmed: false }
    }

    /// Whether `deletions` of `present` objects may go through now. `emptied`: no file is left.
    pub fn allow(&mut self, deletions: usize, present: usize, emptied: bool, now: Instant) -> bool {
        while self.recent.front().is_some_and(|(at, _)| now.duration_since(*at) > AT_ONCE) {
            self.recent.pop_front();
        }
        let lately: usize = self.recent.iter().map(|(_, n)| n).sum();
        let (gone, of) = (deletions + lately, present + lately);
        let mass = deletions > 0 && ((gone > FEW && gone * 2 > of) || emptied);
        if !mass || self.hold.is_zero() {
            self.since = None;
            self.confirmed = false;
            self.passed(deletions, now);
            return true;
        }
        let since = *self.since.get_or_insert(now);
        if !self.confirmed && now.duration_since(since) < self.hold {
            return false;
        }
        self.since = None;
        self.confirmed = false;
        self.recent.clear();
        true
    }

    fn passed(&mut self, deletions: usize, now: Instant) {
        if deletions > 0 {
            self.recent.push_back((now, deletions));
        }
    }

    /// So many objects came: deletions that they make up for do not count any more.
    pub fn arrived(&mut self, mut additions: usize) {
        while let Some((_, n)) = self.recent.back_mut().filter(|_| additions > 0) {
            let made_up = additions.min(*n);
            *n -= made_up;
            additions -= made_up;
            if *n == 0 {
                self.recent.pop_back();
            }
        }
    }

    /// Lets the deletion that is held through, at the next question.
    pub fn confirm(&mut self) {
        self.confirmed = self.since.is_some();
    }

    /// When the deletion that is held goes through by itself.
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
    fn deletions_that_were_made_up_for_do_not_count() {
        let now = Instant::now();
        let mut guard = MassDeletionGuard::new(HOLD);
        for _ in 0..10 {
            assert!(guard.allow(8, 20, false, now));
            guard.arrived(8);
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
    fn the_last_file_is_held_and_istios_way_holds_nothing() {
        let now = Instant::now();
        assert!(!MassDeletionGuard::new(HOLD).allow(1, 1, true, now));
        assert!(MassDeletionGuard::new(Duration::ZERO).allow(1000, 1000, true, now));
    }
}
