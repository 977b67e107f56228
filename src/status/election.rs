//! Leader election: a lease that one process holds at a time (the rules of Kubernetes's own leader election).
//!
//! Pure. Clocks of other machines are never trusted: a lease has expired when it was seen unchanged for its whole duration
//! by our clock. The holder stops leading well before others may take over, counted from the *beginning* of its last
//! successful renewal.

use std::time::{Duration, Instant};

/// The lease as the server holds it, or as it is to be written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Holder of the lease; empty when it was released.
    pub holder: String,
    /// Time that the lease lasts without a renewal.
    pub duration: Duration,
    /// The number of changes of the holder.
    pub transitions: i32,
    /// Time of acquisition, as the server has it; empty for now.
    pub acquired: String,
    /// Resource version; empty for a lease that does not exist yet.
    pub version: String,
}

/// Durations of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Time that the lease lasts without a renewal.
    pub lease: Duration,
    /// Time that the holder leads without a renewal; less than `lease`.
    pub renew: Duration,
    /// Interval of reading the lease, and of renewing it by its holder.
    pub look: Duration,
}

/// The state of one candidate.
#[derive(Debug)]
pub struct Election {
    me: String,
    timing: Timing,
    seen: Option<(Record, Instant)>,
    renewed: Option<Instant>,
}

impl Election {
    /// A candidate of this name, which no other process may have.
    #[must_use]
    pub const fn new(me: String, timing: Timing) -> Self {
        Self { me, timing, seen: None, renewed: None }
    }

    /// The record to write after the lease was read; `None` leaves it alone.
    pub fn next(&mut self, now: Instant, read: Option<Record>) -> Option<Record> {
        let mine = |transitions, acquired, version| Record {
            holder: self.me.clone(),
            duration: self.timing.lease,
            transitions,
            acquired,
            version,
        };
        let Some(record) = read else {
            (self.seen, self.renewed) = (None, None);
            return Some(mine(0, String::new(), String::new()));
        };
        if self.seen.as_ref().is_none_or(|(seen, _)| seen.version != record.version) {
            self.seen = Some((record.clone(), now));
        }
        if record.holder == self.me {
            return Some(mine(record.transitions, record.acquired, record.version));
        }
        self.renewed = None;
        let since = self.seen.as_ref().map_or(now, |(_, at)| *at);
        let free = record.holder.is_empty() || now.saturating_duration_since(since) >= record.duration;
        free.then(|| mine(record.transitions.saturating_add(1), String::new(), record.version))
    }

    /// Our write that began at `began` succeeded.
    pub const fn written(&mut self, began: Instant) {
        self.renewed = Some(began);
    }

    /// Our write was refused, because another process was faster.
    pub fn refused(&mut self) {
        self.renewed = None;
    }

    /// The end of this process's leadership if the lease is not renewed; `None` unless it leads.
    #[must_use]
    pub fn leads_until(&self) -> Option<Instant> {
        self.renewed.map(|at| at + self.timing.renew)
    }

    /// The last known holder of the lease.
    #[must_use]
    pub fn holder(&self) -> &str {
        match &self.seen {
            _ if self.renewed.is_some() => &self.me,
            Some((record, _)) => &record.holder,
            None => "",
        }
    }

    /// The released lease, to write after it was read; `None` when it is not ours.
    #[must_use]
    pub fn release(&self, read: Option<Record>) -> Option<Record> {
        let record = read.filter(|r| r.holder == self.me)?;
        Some(Record { holder: String::new(), duration: Duration::from_secs(1), ..record })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMING: Timing =
        Timing { lease: Duration::from_secs(30), renew: Duration::from_secs(15), look: Duration::from_secs(5) };

    /// A server with one lease.
    #[derive(Default)]
    struct Server(Option<Record>, u64);

    impl Server {
        fn write(&mut self, record: Record) -> bool {
            let version = self.0.as_ref().map(|r| r.version.clone()).unwrap_or_default();
            if version != record.version {
                return false;
            }
            self.1 += 1;
            self.0 = Some(Record { version: self.1.to_string(), ..record });
            true
        }
    }

    #[test]
    fn a_lease_that_is_given_back_is_taken_at_once_and_one_that_is_not_after_its_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (mut a, mut b) = (Election::new("a".into(), TIMING), Election::new("b".into(), TIMING));
        let mut server = Server::default();
        assert!(server.write(a.next(at(0), None).unwrap()));
        a.written(at(0));
        assert_eq!(a.leads_until(), Some(at(15)));
        assert_eq!(b.next(at(1), server.0.clone()), None);
        assert_eq!(b.holder(), "a");
        assert_eq!(b.next(at(30), server.0.clone()), None, "seen for 29 s only");
        let taken = b.next(at(31), server.0.clone()).unwrap();
        assert_eq!((taken.holder.as_str(), taken.transitions), ("b", 1));
        assert!(server.write(taken));
        b.written(at(31));
        assert_eq!(a.next(at(32), server.0.clone()), None);
        assert_eq!(a.leads_until(), None);
        let back = b.release(server.0.clone()).unwrap();
        assert!(server.write(back));
        assert_eq!(a.release(server.0.clone()), None);
        assert_eq!(a.next(at(33), server.0.clone()).unwrap().transitions, 2);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Pass(u64),
        Read(usize),
        Write(usize, bool),
        Release(usize),
    }

    proptest! {
        /// Requests take time, fail, and succeed with a lost answer; two processes never lead at the same time.
        #[test]
        fn two_never_lead_at_once(steps in proptest::collection::vec(prop_oneof![
            3 => (1u64..20).prop_map(Step::Pass),
            6 => (0usize..3).prop_map(Step::Read),
            6 => (0usize..3, any::<bool>()).prop_map(|(who, heard)| Step::Write(who, heard)),
            1 => (0usize..3).prop_map(Step::Release),
        ], 1..120)) {
            let mut now = Instant::now();
            let mut server = Server::default();
            let mut all: Vec<Election> = (0..3).map(|n| Election::new(n.to_string(), TIMING)).collect();
            let mut asked: Vec<Option<(Record, Instant)>> = vec![None; 3];
            for step in steps {
                match step {
                    Step::Pass(seconds) => now += Duration::from_secs(seconds),
                    Step::Read(who) => {
                        asked[who] = all[who].next(now, server.0.clone()).map(|record| (record, now));
                    }
                    Step::Write(who, heard) => {
                        let Some((record, began)) = asked[who].take() else { continue };
                        match (server.write(record), heard) {
                            (true, true) => all[who].written(began),
                            (false, true) => all[who].refused(),
                            (_, false) => {}
                        }
                    }
                    // As the process does it: it stops writing before it gives the lease back.
                    Step::Release(who) => {
                        if let Some(record) = all[who].release(server.0.clone()) {
                            all[who].refused();
                            asked[who] = None;
                            server.write(record);
                        }
                    }
                }
                let leaders = all.iter().filter(|e| e.leads_until().is_some_and(|until| until > now)).count();
                prop_assert!(leaders <= 1);
            }
        }
    }
}
