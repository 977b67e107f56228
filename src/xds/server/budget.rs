//! Bounds on memory that clients occupy: one for each connection and one for all together.
//!
//! Near the bound of all, those that hold the most are refused first: a connection below its fair part of the bound may go on,
//! until twice the bound is held.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A bound on something that many connections hold.
#[derive(Debug)]
pub(crate) struct Budget {
    all: usize,
    each: usize,
    held: AtomicUsize,
    holders: AtomicUsize,
}

impl Budget {
    /// At most `all` together and `each` on one connection.
    pub(crate) fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { all, each, held: AtomicUsize::new(0), holders: AtomicUsize::new(0) })
    }

    /// The part of one connection.
    pub(crate) fn share(self: &Arc<Self>) -> Arc<Share> {
        Arc::new(Share { budget: self.clone(), held: AtomicUsize::new(0) })
    }

    /// The amount that is held.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn admits(&self, of_one: usize, of_all: usize) -> bool {
        let fair = self.all / self.holders.load(Ordering::Relaxed).max(1);
        of_one <= self.each && (of_all <= self.all || (of_one <= fair && of_all <= self.all.saturating_mul(2)))
    }
}

/// The part of one connection in a [`Budget`].
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    held: AtomicUsize,
}

impl Share {
    fn take(&self, amount: usize) -> bool {
        let of_one = self.held.fetch_add(amount, Ordering::Relaxed) + amount;
        if of_one == amount {
            self.budget.holders.fetch_add(1, Ordering::Relaxed);
        }
        let of_all = self.budget.held.fetch_add(amount, Ordering::Relaxed) + amount;
        let admitted = self.budget.admits(of_one, of_all);
        if !admitted {
            self.give(amount);
        }
        admitted
    }

    fn give(&self, amount: usize) {
        self.budget.held.fetch_sub(amount, Ordering::Relaxed);
        if self.held.fetch_sub(amount, Ordering::Relaxed) == amount {
            self.budget.holders.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The part of one stream; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    share: Arc<Share>,
    amount: usize,
}

impl Hold {
    /// Nothing yet, of this part.
    pub(crate) const fn new(share: Arc<Share>) -> Self {
        Self { share, amount: 0 }
    }

    /// Holds so much from now on. False when that is too much: the stream holds as much as before then.
    pub(crate) fn set(&mut self, amount: usize) -> bool {
        let admitted = match amount.checked_sub(self.amount) {
            Some(0) => true,
            Some(more) => self.share.take(more),
            None => {
                self.share.give(self.amount - amount);
                true
            }
        };
        if admitted {
            self.amount = amount;
        }
        admitted
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_bound_and_all_are() {
        let budget = Budget::new(100, 60);
        let (one, two, three) = (budget.share(), budget.share(), budget.share());
        let (mut first, mut second) = (Hold::new(one.clone()), Hold::new(one));
        assert!(first.set(50) && !second.set(11) && second.set(10), "streams of a connection share its part");
        let (mut greedy, mut modest) = (Hold::new(two), Hold::new(three));
        assert!(!greedy.set(51), "more than is left, and more than a fair part");
        assert!(greedy.set(40) && modest.set(20), "less than a fair part is let through");
        assert_eq!(budget.held(), 120);
        drop((first, second, greedy));
        assert_eq!(budget.held(), 20);
        assert!(modest.set(60) && modest.set(0));
        assert_eq!((budget.held(), budget.holders.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn all_together_hold_twice_the_bound_at_most() {
        let budget = Budget::new(1000, 1000);
        let shares: Vec<_> = (0..100).map(|_| budget.share()).collect();
        let mut holds: Vec<_> = shares.iter().map(|share| Hold::new(share.clone())).collect();
        for hold in &mut holds {
            (1..=1000).take_while(|amount| hold.set(*amount)).count();
        }
        assert!(budget.held() >= 1000 && budget.held() <= 2000, "{}", budget.held());
    }
}
