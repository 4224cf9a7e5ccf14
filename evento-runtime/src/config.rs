//! Settings: everything a deployment may set.

mod duration;
mod range;

use std::{collections::BTreeMap, time::Duration};

use evento_core::CheckpointMode;
use serde::{Deserialize, Serialize};

use crate::{ExecutorKind, Pool};

const MIB: usize = 1024 * 1024;

/// Everything a deployment may set, with the defaults of a small one.
///
/// It reads from any format that serde knows; what a document leaves out keeps its default, and a key that does not
/// exist is refused. Durations are texts: a whole number and `ms`, `s`, `m` or `h`. A value out of its range is reported
/// when the bundle starts, together with everything else that is wrong.
///
/// ```
/// use std::time::Duration;
/// use evento_runtime::Settings;
///
/// let settings = Settings::from_json(r#"{ "poll": "250ms", "claim": { "time_to_live": "20s" } }"#)?;
/// assert_eq!(settings.poll, Duration::from_millis(250));
/// assert_eq!(settings.claim.renew_every, Duration::from_secs(3));
///
/// let in_code = Settings { shutdown_budget: Duration::from_secs(5), ..Settings::default() };
/// # drop(in_code);
/// # Ok::<(), evento_runtime::SettingsError>(())
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Claims: which process consumes what.
    pub claim: ClaimSettings,
    /// How often a source is asked for new events where nothing announces them: 1 s; 10 ms to 60 s.
    #[serde(with = "duration")]
    pub poll: Duration,
    /// How much is read at once.
    pub page: PageSettings,
    /// How many bytes of events all consumers of the bundle hold in memory: 256 MiB; no less than `page.bytes` and
    /// `payload_limit`. It is shared out evenly: with many consumers their pages are smaller, but for one event that is
    /// larger by itself.
    pub buffer_bytes: usize,
    /// Checkpoints: how often they are written.
    pub checkpoint: CheckpointSettings,
    /// The most bytes a payload may have, above which an event is dead-lettered: 1 MiB; at least 1.
    pub payload_limit: usize,
    /// Retries of handlers that say nothing of their own.
    pub retry: RetrySettings,
    /// With which crash of the process in its handler an event is dead-lettered: the 3rd; 2 to 100.
    pub crashes: u32,
    /// How many starts may be recorded beyond an executor's permits, under `OnStart`: none; at most 100,000. It hides
    /// the latency of the store, and adds as much to what a crash may cost.
    pub start_ahead: usize,
    /// How long a consumer with work may neither start nor settle anything before an error says how it stands: 60 s; 1 s
    /// to 24 h.
    #[serde(with = "duration")]
    pub silence: Duration,
    /// How long a shutdown may take in all: 30 s; at most 1 h. `0s` cancels at once what is running.
    #[serde(with = "duration")]
    pub shutdown_budget: Duration,
    /// How many places of a pool are left free beside the executors that draw from it: 2; at most 1,000.
    pub headroom: usize,
    /// Executors: those the code registers are given another capacity or pool, others are defined.
    pub executors: Vec<ExecutorSettings>,
    /// Components, by name. What is said here goes before everything the code says.
    pub components: BTreeMap<String, ComponentSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            claim: ClaimSettings::default(),
            poll: Duration::from_secs(1),
            page: PageSettings::default(),
            buffer_bytes: 256 * MIB,
            checkpoint: CheckpointSettings::default(),
            payload_limit: MIB,
            retry: RetrySettings::default(),
            crashes: 3,
            start_ahead: 0,
            silence: Duration::from_secs(60),
            shutdown_budget: Duration::from_secs(30),
            headroom: 2,
            executors: Vec::new(),
            components: BTreeMap::new(),
        }
    }
}

/// Claims: which process consumes what.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClaimSettings {
    /// How long a claim lasts without renewal, and so how long a dead process is waited for: 10 s; 2 s to 10 min.
    #[serde(with = "duration")]
    pub time_to_live: Duration,
    /// How often a claim is renewed: 3 s; 50 ms to half of what is left of `time_to_live` after one second, so that one
    /// renewal may fail.
    #[serde(with = "duration")]
    pub renew_every: Duration,
}

impl Default for ClaimSettings {
    fn default() -> Self {
        Self { time_to_live: Duration::from_secs(10), renew_every: Duration::from_secs(3) }
    }
}

/// How much is read at once: a page ends at whichever comes first.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PageSettings {
    /// Matching events: 1,000; 1 to 100,000.
    pub events: usize,
    /// Bytes of payload: 8 MiB; at least 1.
    pub bytes: usize,
    /// Positions looked at, matching or not: 50,000; 1 to 10,000,000.
    pub scanned: u64,
}

impl Default for PageSettings {
    fn default() -> Self {
        Self { events: 1_000, bytes: 8 * MIB, scanned: 50_000 }
    }
}

/// Checkpoints: how often they are written. They are also written whenever a consumer has nothing else to do.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointSettings {
    /// After this long: 100 ms; 1 ms to 60 s.
    #[serde(with = "duration")]
    pub every: Duration,
    /// After this many settled events: 1,000; at least 1.
    pub events: usize,
    /// After every single event, before the next begins: no. Costs a write of the store for each.
    pub every_event: bool,
    /// After this long where events were only skipped: 5 s; 100 ms to 10 min.
    #[serde(with = "duration")]
    pub skipped_every: Duration,
    /// With this many events settled but unwritten nothing more is admitted: 10,000; no less than `events`.
    pub max_unwritten: usize,
    /// With a write this long overdue nothing more is admitted: 2 s; no less than `every`, at most 5 min.
    #[serde(with = "duration")]
    pub overdue: Duration,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        Self {
            every: Duration::from_millis(100),
            events: 1_000,
            every_event: false,
            skipped_every: Duration::from_secs(5),
            max_unwritten: 10_000,
            overdue: Duration::from_secs(2),
        }
    }
}

/// Retries of handlers that say nothing of their own.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetrySettings {
    /// The delay before the second attempt, which doubles with each further one: 1 s; 1 ms to 24 h.
    #[serde(with = "duration")]
    pub delay: Duration,
    /// The most it grows to: 30 s; no less than `delay`, at most 24 h.
    #[serde(with = "duration")]
    pub cap: Duration,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self { delay: Duration::from_secs(1), cap: Duration::from_secs(30) }
    }
}

/// One executor, as a deployment sets it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutorSettings {
    /// Its name.
    pub name: String,
    /// What runs its handlers: `tasks`, `pooled` or `partitioned`. Needed where the code does not register it; the same
    /// as in the code where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ExecutorKind>,
    /// How many handlers run at once, at most: from 1.
    pub capacity: usize,
    /// The pool that its permits draw from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draws_from: Option<Pool>,
}

/// One component, as a deployment sets it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ComponentSettings {
    /// Its checkpoint mode: `on-start` or `watermark`.
    #[serde(with = "mode", skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointMode>,
}

/// A document that is no [`Settings`].
#[derive(Debug, thiserror::Error)]
#[error("the settings cannot be read; correct the key or value that the cause names")]
pub struct SettingsError {
    #[from]
    source: serde_json::Error,
}

impl Settings {
    /// Reads a JSON document.
    ///
    /// # Errors
    /// [`SettingsError`] says, in its source, which key or value is at fault, where it stands and what may stand there.
    pub fn from_json(json: &str) -> Result<Self, SettingsError> {
        Ok(serde_json::from_str(json)?)
    }
}

/// The word that settings and attributes use for a checkpoint mode.
pub(crate) fn mode_name(mode: CheckpointMode) -> &'static str {
    match mode {
        CheckpointMode::OnStart => "on-start",
        CheckpointMode::Watermark => "watermark",
    }
}

mod mode {
    use evento_core::CheckpointMode;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Word {
        OnStart,
        Watermark,
    }

    #[expect(clippy::ref_option, reason = "the form that serde's `with` calls")]
    pub(super) fn serialize<S: Serializer>(mode: &Option<CheckpointMode>, serializer: S) -> Result<S::Ok, S::Error> {
        mode.map(super::mode_name).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CheckpointMode>, D::Error> {
        Ok(Option::<Word>::deserialize(from)?.map(|word| match word {
            Word::OnStart => CheckpointMode::OnStart,
            Word::Watermark => CheckpointMode::Watermark,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> String {
        let error = Settings::from_json(json).unwrap_err();
        format!("{:#}", anyhow::Error::new(error))
    }

    #[test]
    fn what_a_document_leaves_out_keeps_its_default_and_all_of_it_survives_a_round_trip() {
        let settings = Settings::from_json(
            r#"{ "executors": [{ "name": "read-model", "kind": "partitioned", "capacity": 8 }],
                 "components": { "OrderView": { "checkpoint": "on-start" } } }"#,
        )
        .unwrap();
        assert_eq!(settings.checkpoint, CheckpointSettings::default());
        assert_eq!(settings.components["OrderView"].checkpoint, Some(CheckpointMode::OnStart));
        let written = serde_json::to_string(&settings).unwrap();
        assert_eq!(Settings::from_json(&written).unwrap(), settings);
    }

    #[test]
    fn an_unknown_key_is_refused_by_name_with_those_that_exist() {
        let error = refused(r#"{ "claim": { "time_to_life": "10s" } }"#);
        assert!(error.contains("`time_to_life`") && error.contains("`time_to_live`"), "{error}");
    }

    #[test]
    fn a_bare_number_is_no_duration_and_the_cure_is_said() {
        let error = refused(r#"{ "poll": 250 }"#);
        assert!(error.contains("250") && error.contains(r#""250ms""#) && error.contains("line 1"), "{error}");
    }

    #[test]
    fn an_unknown_mode_is_refused_with_those_that_exist() {
        let error = refused(r#"{ "components": { "A": { "checkpoint": "onstart" } } }"#);
        assert!(
            error.contains("`onstart`") && error.contains("`on-start`") && error.contains("`watermark`"),
            "{error}"
        );
    }
}
