use std::time::Duration;

/// Stops a handler's attempts while what it depends on is down.
///
/// Five transient failures without a success in between open it. While it is open only single probes run: the first
/// half a second later, each further one after twice the time. A success closes it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    probe_at: Duration,
    delay: Duration,
    probing: bool,
}

const OPENS_AT: u32 = 5;
const FIRST_PROBE: Duration = Duration::from_millis(500);
const LAST_PROBE: Duration = Duration::from_secs(30);

impl Breaker {
    /// How many attempts may start now.
    pub(super) fn admits(&self, now: Duration) -> usize {
        match self.open {
            None => usize::MAX,
            Some(open) => usize::from(!open.probing && open.probe_at <= now),
        }
    }

    /// An attempt starts.
    pub(super) fn started(&mut self) {
        if let Some(open) = &mut self.open {
            open.probing = true;
        }
    }

    /// An attempt that had started did not run after all, or was cut off.
    pub(super) fn withdrawn(&mut self) {
        if let Some(open) = &mut self.open {
            open.probing = false;
        }
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// An attempt failed; `transient` where what it depends on is to blame. `was_probe` cannot be told apart from
    /// attempts that were under way when the breaker opened; those come back before the first probe is due.
    pub(super) fn failed(&mut self, transient: bool, now: Duration) {
        match &mut self.open {
            Some(open) if open.probing => {
                open.probing = false;
                if transient {
                    open.delay = (open.delay * 2).min(LAST_PROBE);
                }
                open.probe_at = now + open.delay;
            }
            Some(_) => {}
            None if transient => {
                self.failures += 1;
                if self.failures >= OPENS_AT {
                    self.open = Some(Open { probe_at: now + FIRST_PROBE, delay: FIRST_PROBE, probing: false });
                }
            }
            None => {}
        }
    }

    /// When the next probe may start.
    pub(super) fn probe_at(&self) -> Option<Duration> {
        self.open.filter(|open| !open.probing).map(|open| open.probe_at)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_transient_failures_in_a_row_open_it_and_a_success_closes_it() {
        let mut breaker = Breaker::default();
        for _ in 0..4 {
            breaker.failed(true, Duration::ZERO);
        }
        breaker.succeeded();
        for _ in 0..4 {
            breaker.failed(true, Duration::ZERO);
        }
        assert!(!breaker.is_open());
        breaker.failed(true, Duration::ZERO);
        assert!(breaker.is_open());
        breaker.succeeded();
        assert_eq!(breaker.admits(Duration::ZERO), usize::MAX);
    }

    #[test]
    fn probes_are_single_and_their_delay_doubles() {
        let mut breaker = Breaker::default();
        (0..5).for_each(|_| breaker.failed(true, Duration::ZERO));
        let mut at = FIRST_PROBE;
        for delay in [1000, 2000, 4000] {
            assert_eq!(breaker.admits(at - Duration::from_millis(1)), 0);
            assert_eq!(breaker.admits(at), 1);
            breaker.started();
            assert_eq!(breaker.admits(at), 0);
            breaker.failed(true, at);
            at += Duration::from_millis(delay);
            assert_eq!(breaker.probe_at(), Some(at));
        }
    }

    #[test]
    fn ordinary_failures_never_open_it() {
        let mut breaker = Breaker::default();
        (0..100).for_each(|_| breaker.failed(false, Duration::ZERO));
        assert!(!breaker.is_open());
    }
}
