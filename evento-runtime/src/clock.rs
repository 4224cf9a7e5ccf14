//! The one place that reads clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evento_core::Timestamp;
use tokio::time::Instant;

/// Tells the time to one bundle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    began_at: Timestamp,
    /// Whether everything follows tokio's clock, which a test can pause: leases instead of the machine's boot clock, and
    /// the time that is stored.
    leases_follow_tokio: bool,
}

impl Clock {
    pub(crate) fn system() -> Self {
        Self { began: Instant::now(), began_at: Self::wall(), leases_follow_tokio: false }
    }

    pub(crate) fn tokio() -> Self {
        Self { began: Instant::now(), began_at: Self::wall(), leases_follow_tokio: true }
    }

    pub(crate) fn leases_follow_tokio(self) -> bool {
        self.leases_follow_tokio
    }

    /// Time since the bundle began, for everything the engine decides.
    pub(crate) fn now(self) -> Duration {
        Instant::now().saturating_duration_since(self.began)
    }

    /// The moment that [`Clock::now`] will read as `at`.
    pub(crate) fn instant(self, at: Duration) -> Instant {
        self.began + at
    }

    /// Ends when [`Clock::now`] reads `at`; never, where there is no such time.
    pub(crate) async fn sleep_until(self, at: Option<Duration>) {
        match at {
            Some(at) => tokio::time::sleep_until(self.instant(at)).await,
            None => std::future::pending().await,
        }
    }

    /// Time on a clock that goes on while the machine sleeps, for leases: who slept has lost that time.
    pub(crate) fn boot(self) -> Duration {
        if self.leases_follow_tokio { self.now() } else { boot_clock().unwrap_or_else(|| self.now()) }
    }

    /// The wall clock, for what is stored and read by people.
    pub(crate) fn recorded(self) -> Timestamp {
        if !self.leases_follow_tokio {
            return Self::wall();
        }
        let elapsed = i64::try_from(self.now().as_micros()).unwrap_or(i64::MAX);
        Timestamp(self.began_at.0.saturating_add(elapsed))
    }

    /// The machine's wall clock.
    pub(crate) fn wall() -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the one place")]
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
    }
}

#[cfg(target_os = "linux")]
fn boot_clock() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

#[cfg(not(target_os = "linux"))]
fn boot_clock() -> Option<Duration> {
    None
}
