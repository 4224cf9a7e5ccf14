//! Delays between attempts: pure, so that they can be tested to any attempt.

use std::time::Duration;

/// How the delay before another attempt grows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Backoff {
    /// The delay before the second attempt, without jitter.
    pub first: Duration,
    /// The most a delay grows to, without jitter.
    pub cap: Duration,
}

impl Default for Backoff {
    /// One second, doubling to thirty.
    fn default() -> Self {
        Self { first: Duration::from_secs(1), cap: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// The delay after `failures` failed attempts: `first` doubled each time, to the cap, with 20 % of jitter either way.
    ///
    /// `random` is any number, uniform over its range; the same number gives the same delay.
    ///
    /// ```
    /// use evento_core::retry::Backoff;
    ///
    /// let delay = Backoff::default().delay(10_000, u64::MAX);
    /// assert!(delay.as_secs_f64() <= 36.0);
    /// ```
    #[must_use]
    pub fn delay(self, failures: u32, random: u64) -> Duration {
        // Beyond 2^31 every cap is reached; shifting further would wrap to a short delay.
        let doublings = failures.saturating_sub(1).min(31);
        let bare = self.first.saturating_mul(1 << doublings).min(self.cap.max(self.first));
        let unit = (random >> 11) as f64 / (1_u64 << 53) as f64;
        bare.mul_f64(0.8 + 0.4 * unit)
    }

    /// The longest delay there is: the cap and its jitter.
    #[must_use]
    pub fn longest(self) -> Duration {
        self.delay(u32::MAX, u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E19: the seed's delay overflowed at attempt 55 and slept a millisecond.
    #[test]
    fn e19_delays_never_fall_and_stay_within_a_fifth_of_their_bound_to_attempt_10_000() {
        let backoff = Backoff::default();
        let mut last = Duration::ZERO;
        for failures in 1..=10_000 {
            let [least, middle, most] = [0, u64::MAX / 2, u64::MAX].map(|random| backoff.delay(failures, random));
            let bare = Duration::from_secs(1 << (failures - 1).min(10)).min(Duration::from_secs(30));
            assert!(least >= bare.mul_f64(0.799) && most <= bare.mul_f64(1.201), "attempt {failures}");
            assert!(middle >= last, "attempt {failures}: {middle:?} after {last:?}");
            last = middle;
        }
    }

    #[test]
    fn a_first_delay_above_the_cap_is_kept() {
        let backoff = Backoff { first: Duration::from_secs(60), cap: Duration::from_secs(30) };
        assert_eq!(backoff.delay(3, 0), Duration::from_secs(48));
    }
}
