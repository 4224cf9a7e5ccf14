//! Durations as people write them: `100ms`, `10s`, `5m`, `1h`; the same forms the attributes take.

use std::{fmt, time::Duration};

use serde::{Deserializer, Serializer, de};

const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

const CURE: &str = r#"a duration: a whole number and `ms`, `s`, `m` or `h`, such as "250ms" or "10s""#;

/// The shortest exact text, to the millisecond.
pub(crate) fn text(duration: Duration) -> String {
    let millis = duration.as_millis();
    match UNITS.iter().find(|(_, unit)| millis > 0 && millis.is_multiple_of(u128::from(*unit))) {
        Some((name, unit)) => format!("{}{name}", millis / u128::from(*unit)),
        None => "0s".to_owned(),
    }
}

fn parse(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*millis).map(Duration::from_millis)
}

pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(*duration))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    struct Visitor;

    impl de::Visitor<'_> for Visitor {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(CURE)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
            parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }

    from.deserialize_str(Visitor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_reads_and_writes_back_as_its_shortest_text() {
        for (written, millis, shortest) in [
            ("250ms", 250, "250ms"),
            ("10s", 10_000, "10s"),
            ("60s", 60_000, "1m"),
            ("2h", 7_200_000, "2h"),
            ("0ms", 0, "0s"),
        ] {
            let duration = parse(written).unwrap();
            assert_eq!(duration, Duration::from_millis(millis), "{written}");
            assert_eq!(text(duration), shortest);
        }
    }

    #[test]
    fn what_is_no_duration_is_not_guessed_at() {
        for text in ["", "s", "10", "1.5s", "-1s", "10 s", "10sec", "99999999999999999999h", "18446744073709551615h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
