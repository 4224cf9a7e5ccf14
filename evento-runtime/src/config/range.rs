use std::{fmt::Display, ops::RangeInclusive, time::Duration};

use super::{Settings, duration::text};
use crate::Problem;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

impl Settings {
    /// What is out of its range, in the order of the fields.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let Self { claim, page, checkpoint, retry, .. } = self;
        let mut found = Found::default();

        found.time("claim.time_to_live", claim.time_to_live, 2 * SECOND..=600 * SECOND);
        // A claim counts as lost one second early, and one renewal in between may fail.
        let most = claim.time_to_live.clamp(2 * SECOND, 600 * SECOND).saturating_sub(SECOND) / 2;
        found.time("claim.renew_every", claim.renew_every, 50 * MS..=most);
        found.time("poll", self.poll, 10 * MS..=60 * SECOND);

        found.number("page.events", page.events, 1..=100_000);
        found.number("page.bytes", page.bytes, 1..=usize::MAX);
        found.number("page.scanned", page.scanned, 1..=10_000_000);
        found.number("payload_limit", self.payload_limit, 1..=usize::MAX);
        found.at_least(
            "buffer_bytes",
            self.buffer_bytes,
            [("page.bytes", page.bytes), ("payload_limit", self.payload_limit)],
        );

        found.time("checkpoint.every", checkpoint.every, MS..=60 * SECOND);
        found.number("checkpoint.events", checkpoint.events, 1..=usize::MAX);
        found.time("checkpoint.skipped_every", checkpoint.skipped_every, 100 * MS..=600 * SECOND);
        found.at_least(
            "checkpoint.max_unwritten",
            checkpoint.max_unwritten,
            [("checkpoint.events", checkpoint.events)],
        );
        found.time("checkpoint.overdue", checkpoint.overdue, checkpoint.every.min(60 * SECOND)..=300 * SECOND);

        found.time("retry.delay", retry.delay, MS..=24 * HOUR);
        found.time("retry.cap", retry.cap, retry.delay.min(24 * HOUR)..=24 * HOUR);
        found.number("crashes", self.crashes, 2..=100);
        found.time("silence", self.silence, SECOND..=24 * HOUR);
        found.time("shutdown_budget", self.shutdown_budget, Duration::ZERO..=HOUR);
        found.number("headroom", self.headroom, 0..=1_000);
        found.0
    }
}

#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn time(&mut self, key: &str, value: Duration, range: RangeInclusive<Duration>) {
        if !range.contains(&value) {
            self.push(key, &text(value), &text(*range.start()), Some(&text(*range.end())));
        }
    }

    fn number<T: PartialOrd + Display + Max>(&mut self, key: &str, value: T, range: RangeInclusive<T>) {
        if !range.contains(&value) {
            let most = (!range.end().is_max()).then(|| range.end().to_string());
            self.push(key, &value.to_string(), &range.start().to_string(), most.as_deref());
        }
    }

    fn at_least<const N: usize>(&mut self, key: &str, value: usize, others: [(&str, usize); N]) {
        for (other, least) in others {
            if value < least {
                let what = format!("setting `{key}` is {value}, less than `{other}`, which is {least}");
                let cure = format!("raise `{key}` to at least {least}, or lower `{other}`");
                self.0.push(Problem::new(what, cure));
            }
        }
    }

    fn push(&mut self, key: &str, value: &str, least: &str, most: Option<&str>) {
        let range = match most {
            Some(most) => format!("a value from `{least}` to `{most}`"),
            None => format!("at least `{least}`"),
        };
        self.0.push(Problem::new(format!("setting `{key}` is out of range: `{value}`"), format!("give it {range}")));
    }
}

/// Whether a bound is no bound at all, and not worth a word.
trait Max {
    fn is_max(&self) -> bool;
}

macro_rules! max {
    ($($number:ty),*) => {
        $(impl Max for $number {
            fn is_max(&self) -> bool {
                *self == Self::MAX
            }
        })*
    };
}

max!(usize, u64, u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_in_range() {
        assert_eq!(Settings::default().problems(), []);
    }

    /// E18 and section 12: a setting out of range keeps the bundle from starting.
    #[test]
    fn everything_out_of_range_is_reported_with_its_range() {
        let mut settings = Settings::default();
        settings.claim.renew_every = 8 * SECOND;
        settings.poll = Duration::ZERO;
        settings.page.events = 0;
        settings.checkpoint.events = 20_000;
        settings.retry.cap = MS;
        settings.crashes = 1;
        let text: Vec<_> = settings.problems().iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "setting `claim.renew_every` is out of range: `8s`\ngive it a value from `50ms` to `4500ms`",
                "setting `poll` is out of range: `0s`\ngive it a value from `10ms` to `1m`",
                "setting `page.events` is out of range: `0`\ngive it a value from `1` to `100000`",
                "setting `checkpoint.max_unwritten` is 10000, less than `checkpoint.events`, which is 20000\n\
                 raise `checkpoint.max_unwritten` to at least 20000, or lower `checkpoint.events`",
                "setting `retry.cap` is out of range: `1ms`\ngive it a value from `1s` to `24h`",
                "setting `crashes` is out of range: `1`\ngive it a value from `2` to `100`",
            ]
        );
    }

    #[test]
    fn a_buffer_that_cannot_hold_one_page_or_one_payload_is_refused() {
        let settings = Settings { buffer_bytes: 1024, ..Settings::default() };
        let text: Vec<_> = settings.problems().iter().map(ToString::to_string).collect();
        assert!(text[0].contains("`page.bytes`") && text[1].contains("`payload_limit`"), "{text:?}");
    }
}
