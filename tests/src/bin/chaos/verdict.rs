//! Counts from the effects what was lost, repeated and out of order, and holds that against what is promised.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use evento_core::CheckpointMode;

use crate::{
    effect::{Effect, What},
    setup::Combination,
};

/// What one log cost, or several.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) runs: u64,
    pub(crate) events: usize,
    /// Kills, and freezes for longer than the claim lasts.
    pub(crate) kills: u32,
    /// Events that were never handled.
    pub(crate) lost: usize,
    /// Attempts that were made again.
    pub(crate) repeated: usize,
    /// Attempts that were made before or beside another of their aggregate that they had to wait for.
    pub(crate) out_of_order: usize,
    /// The most that the kills may have cost: events lost on-start, attempts repeated under watermark.
    pub(crate) bound: usize,
    /// The most handlers that ran at once.
    pub(crate) most_running: usize,
    /// Broken promises.
    pub(crate) broken: Vec<String>,
}

impl Totals {
    pub(crate) fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.events += other.events;
        self.kills += other.kills;
        self.lost += other.lost;
        self.repeated += other.repeated;
        self.out_of_order += other.out_of_order;
        self.bound += other.bound;
        self.most_running = self.most_running.max(other.most_running);
        self.broken.extend(other.broken);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, events, kills, lost, repeated, out_of_order, bound, most_running, broken } = self;
        write!(
            f,
            "runs={runs} kills={kills} lost={lost} repeated={repeated} out_of_order={out_of_order} bound={bound} \
             events={events} most_running={most_running} broken={}",
            broken.len()
        )
    }
}

/// The last start of an aggregate.
struct Last {
    process: u32,
    epoch: u64,
    event_and_attempt: (u64, u32),
    ended: bool,
}

/// What is known of one aggregate, as far as the effects have been read.
#[derive(Default)]
struct Aggregate {
    last: Option<Last>,
    /// The greatest sequence that ever started.
    greatest: Option<u64>,
    /// Sequences that were handled.
    handled: HashSet<u64>,
}

pub(crate) fn judge(combination: Combination, events: usize, kills: u32, effects: &[Effect]) -> Totals {
    let capacity = combination.capacity();
    let mut totals = Totals { runs: 1, events, kills, ..Totals::default() };
    totals.most_running = most_running(effects);
    if totals.most_running > capacity {
        totals.broken.push(format!("{} handlers ran at once, the capacity is {capacity}", totals.most_running));
    }

    let handled: HashSet<_> =
        effects.iter().filter(|it| matches!(it.what, What::Handled { .. })).map(|it| it.number).collect();
    totals.lost = (0..events).filter(|number| !handled.contains(number)).count();
    totals.repeated = repeated(effects);
    let on_start = combination.mode == CheckpointMode::OnStart;
    if combination.is_ordered() {
        totals.out_of_order = out_of_order(on_start, effects);
    }
    if totals.out_of_order > 0 {
        totals.broken.push(format!("{} attempts out of order", totals.out_of_order));
    }

    if on_start {
        totals.bound = kills as usize * capacity;
        if totals.repeated > 0 {
            totals.broken.push(format!("on-start repeated {} attempts", totals.repeated));
        }
        if totals.lost > totals.bound {
            totals
                .broken
                .push(format!("on-start lost {} events, {kills} kills may cost {}", totals.lost, totals.bound));
        }
        broken_by_one_process(capacity, kills, effects, &handled, &mut totals.broken);
    } else {
        totals.bound = (1..=kills).map(|process| capacity + unwritten(process, effects)).sum();
        if totals.lost > 0 {
            totals.broken.push(format!("watermark lost {} events", totals.lost));
        }
        if kills > 0 && totals.repeated > totals.bound {
            totals.broken.push(format!("watermark repeated {} attempts of at most {}", totals.repeated, totals.bound));
        }
    }
    totals
}

fn most_running(effects: &[Effect]) -> usize {
    let running = effects.iter().map(|it| if let What::Began { running } = it.what { running } else { 0 });
    running.max().unwrap_or(0)
}

fn repeated(effects: &[Effect]) -> usize {
    let mut seen = HashSet::new();
    let began = effects.iter().filter(|it| matches!(it.what, What::Began { .. }));
    began.filter(|it| !seen.insert((it.number, it.attempt))).count()
}

/// Events that a process began and nobody finished: at most its permits for one that was killed, none for the last.
fn broken_by_one_process(
    capacity: usize,
    kills: u32,
    effects: &[Effect],
    handled: &HashSet<usize>,
    broken: &mut Vec<String>,
) {
    let mut last_process = HashMap::new();
    for effect in effects {
        last_process.insert(effect.number, effect.process);
    }
    let mut lost_in: HashMap<u32, usize> = HashMap::new();
    for (number, process) in last_process {
        if !handled.contains(&number) {
            *lost_in.entry(process).or_default() += 1;
        }
    }
    for (process, lost) in lost_in {
        let most = if process <= kills { capacity } else { 0 };
        if lost > most {
            broken.push(format!("process {process} of {} lost {lost} events, it may cost {most}", kills + 1));
        }
    }
}

/// What a process had settled and may not have written: what returned after the last write but one was asked for. The
/// last may not have been made, and what returned just before a write may have been too late for it.
fn unwritten(process: u32, effects: &[Effect]) -> usize {
    let writes = effects.iter().filter(|it| it.process == process).filter_map(|it| match it.what {
        What::Handled { writes } => Some(writes),
        _ => None,
    });
    let last = writes.clone().max().unwrap_or(0);
    // Failed attempts are stored like those that settle, so they count too.
    let failed = effects.iter().filter(|it| it.process == process && it.what == What::Failed).count();
    writes.filter(|writes| writes + 2 >= last).count() + failed
}

/// Within a process attempts of an aggregate never overlap, and under one claim they rise. From one to the next nothing is begun
/// before what came earlier was handled; on-start what a kill cost is never begun again.
fn out_of_order(on_start: bool, effects: &[Effect]) -> usize {
    let mut aggregates: HashMap<&str, Aggregate> = HashMap::new();
    let mut out_of_order = 0;
    // Not every sequence of an aggregate is handled: others are of events that no handler takes.
    let mut taken: HashMap<&str, Vec<u64>> = HashMap::new();
    for effect in effects {
        taken.entry(effect.key.as_str()).or_default().push(effect.sequence);
    }
    taken.values_mut().for_each(|sequences| {
        sequences.sort_unstable();
        sequences.dedup();
    });
    for effect in effects {
        let aggregate = aggregates.entry(effect.key.as_str()).or_default();
        let (process, sequence, attempt) = (effect.process, effect.sequence, effect.attempt);
        if !matches!(effect.what, What::Began { .. }) {
            if let Some(last) = &mut aggregate.last
                && (last.process, last.event_and_attempt) == (process, (sequence, attempt))
            {
                last.ended = true;
            }
            if matches!(effect.what, What::Handled { .. }) {
                aggregate.handled.insert(sequence);
            }
            continue;
        }
        let in_process = aggregate.last.as_ref().is_none_or(|last| {
            let rises = last.epoch != effect.epoch || (sequence, attempt) > last.event_and_attempt;
            last.process != process || (last.ended && rises)
        });
        let across = if on_start {
            aggregate.greatest.is_none_or(|greatest| sequence >= greatest)
        } else {
            let earlier = taken.get(effect.key.as_str()).into_iter().flatten().take_while(|it| **it < sequence);
            earlier.copied().all(|it| aggregate.handled.contains(&it))
        };
        if !in_process || !across {
            out_of_order += 1;
        }
        aggregate.greatest = aggregate.greatest.max(Some(sequence));
        let event_and_attempt = (sequence, attempt);
        aggregate.last = Some(Last { process, epoch: effect.epoch, event_and_attempt, ended: false });
    }
    out_of_order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Executor;

    fn effects(lines: &[&str]) -> Vec<Effect> {
        lines.iter().map(|line| line.parse().unwrap()).collect()
    }

    fn judged(mode: CheckpointMode, executor: Executor, events: usize, kills: u32, lines: &[&str]) -> Totals {
        judge(Combination { mode, executor }, events, kills, &effects(lines))
    }

    #[test]
    fn an_event_that_nobody_handled_is_lost_and_breaks_watermark() {
        let lines = ["1 1 0 k 1 1 began 1", "1 1 0 k 1 1 handled 0", "1 1 1 k 2 1 began 1"];
        let totals = judged(CheckpointMode::Watermark, Executor::Tasks, 2, 1, &lines);
        assert_eq!((totals.lost, totals.broken.len()), (1, 1), "{:?}", totals.broken);
        let totals = judged(CheckpointMode::OnStart, Executor::Tasks, 2, 1, &lines);
        assert_eq!((totals.lost, totals.broken.len()), (1, 0), "{:?}", totals.broken);
    }

    #[test]
    fn an_event_lost_without_a_kill_breaks_on_start() {
        let totals = judged(CheckpointMode::OnStart, Executor::Tasks, 1, 0, &["1 1 0 k 1 1 began 1"]);
        assert!(!totals.broken.is_empty());
    }

    #[test]
    fn an_attempt_that_is_made_again_breaks_on_start_and_counts_under_watermark() {
        let lines = ["1 1 0 k 1 1 began 1", "2 2 0 k 1 1 began 1", "2 2 0 k 1 1 handled 0"];
        let totals = judged(CheckpointMode::OnStart, Executor::Partitioned, 1, 1, &lines);
        assert_eq!((totals.repeated, totals.broken.len()), (1, 1), "{:?}", totals.broken);
        let totals = judged(CheckpointMode::Watermark, Executor::Partitioned, 1, 1, &lines);
        assert_eq!((totals.repeated, totals.broken.len()), (1, 0), "{:?}", totals.broken);
    }

    #[test]
    fn going_past_an_unhandled_event_overtaking_and_overlapping_are_out_of_order() {
        let past = ["1 1 0 k 1 1 began 1", "2 2 1 k 2 1 began 1", "2 2 1 k 2 1 handled 0", "2 2 0 k 1 1 began 1"];
        assert_eq!(out_of_order(false, &effects(&past)), 2);
        assert_eq!(out_of_order(true, &effects(&past)), 1);
        let again = ["1 1 0 k 1 1 began 1", "1 1 0 k 1 1 cut-off 0", "1 2 0 k 1 1 began 1", "1 2 0 k 1 1 handled 0"];
        assert_eq!(out_of_order(false, &effects(&again)), 0, "delivered again under another claim");
        let overlap = ["1 1 0 k 1 1 began 1", "1 1 1 k 2 1 began 2", "1 1 0 k 1 1 handled 0", "1 1 1 k 2 1 handled 0"];
        assert_eq!(out_of_order(true, &effects(&overlap)), 1);
    }

    #[test]
    fn more_handlers_than_permits_are_seen() {
        let totals = judged(CheckpointMode::Watermark, Executor::Tasks, 0, 0, &["1 1 0 k 1 1 began 9"]);
        assert!(!totals.broken.is_empty());
    }
}
