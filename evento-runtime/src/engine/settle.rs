use evento_core::{
    CheckpointMode, Fault, Position,
    store::{DeadReason, WhyHeld},
};

use super::{
    Engine, FailureKind, Mutant, Now, Outcome, Run,
    slot::{LaneId, Origin, SlotId, Stage, Verdict},
};

impl Engine {
    /// An attempt ended; `last` where its permit is free again, `random` is any number.
    pub(crate) fn ended(&mut self, id: SlotId, outcome: Outcome, last: bool, random: u64, now: Now) {
        let Some(slot) = self.slots.get(id) else { return };
        debug_assert!(matches!(slot.stage, Stage::Running), "an attempt ended that was not running: {:?}", slot.stage);
        let (handler, lane) = (slot.handler, slot.lane);
        self.busy -= 1;
        let failed = !matches!(outcome, Outcome::Handled);
        match outcome {
            Outcome::Handled => {
                self.counts.handled += 1;
                self.breakers[handler].succeeded();
            }
            Outcome::Failed(_) | Outcome::CutOff => self.unbegin(id),
        }
        if let Run::Executor { index, .. } = self.config.policies[handler].run {
            if last && !(failed && self.mutant(Mutant::PermitLeakedOnFailure)) {
                self.uses[index].running -= 1;
                self.uses[index].returned += 1;
            }
        } else {
            self.inline_busy = None;
        }
        if failed && let Some(lane) = lane {
            self.end_run(lane);
        }
        // A held key that had gone on behind it begins with it again.
        if failed {
            self.held_part_changed(id);
        }
        match outcome {
            Outcome::Handled => self.settle(id, now),
            Outcome::CutOff => self.cut_off(id, now),
            Outcome::Failed(failure) => {
                self.counts.failed_attempts += 1;
                let transient = matches!(failure.kind, FailureKind::Handler(Fault::Transient) | FailureKind::Overrun);
                self.counts.transient_failures += u64::from(transient);
                self.breakers[handler].failed(transient, now.since_start);
                self.failed(id, *failure, random, now);
            }
        }
    }

    fn failed(&mut self, id: SlotId, failure: super::Failure, random: u64, now: Now) {
        let is_stored = !self.mutant(Mutant::RetryNotStored);
        let Some(slot) = self.slots.get_mut(id) else { return };
        let policy = &self.config.policies[slot.handler];
        let passed = self.config.mode == CheckpointMode::OnStart && policy.run != Run::Inline;
        let executor = match policy.run {
            Run::Executor { index, .. } if passed => Some(index),
            _ => None,
        };
        match slot.failed(failure, policy, passed && !policy.redeliver, random, now) {
            Verdict::Dead(reason) => {
                self.die(id, reason, now);
            }
            Verdict::Again(retry, due) => {
                if slot.origin == Origin::Redriven && !self.requests.redrives(retry.position) {
                    // Its request was stopped while it ran: it stays dead.
                    let parks = self.keys.holds_behind(&slot.event);
                    match slot.lane {
                        Some(lane) if parks => self.drop_lane(lane),
                        lane => {
                            self.leave(id, now);
                            lane.into_iter().for_each(|lane| self.lanes.close_if_empty(lane));
                        }
                    }
                    return;
                }
                // A dead event that is tried again stays a letter until it succeeds: there is no retry to store.
                if slot.origin != Origin::Redriven && is_stored {
                    self.retries.insert(retry.position, retry.clone());
                    slot.needs_write = self.pending.retry(retry);
                    if let Some(index) = executor {
                        self.uses[index].unstored += 1;
                        self.unstored.push((slot.needs_write, index));
                    }
                }
                self.wait_until(id, due);
            }
        }
    }

    /// The end of a shutdown's budget: what may have had its effect and is not delivered again is kept as a letter.
    ///
    /// Nothing is admitted in its place any more, or the checkpoint would pass it.
    fn cut_off(&mut self, id: SlotId, now: Now) {
        self.stop();
        let Some(slot) = self.slots.get_mut(id) else { return };
        let inline = self.config.policies[slot.handler].run == Run::Inline;
        if inline || self.config.mode == CheckpointMode::Watermark || slot.origin == Origin::Redriven {
            slot.stage = Stage::Ready;
            return;
        }
        slot.tried.get_or_insert_default().cause = vec!["the shutdown's budget was spent while it was handled".into()];
        self.die(id, DeadReason::AbandonedAtShutdown, now);
    }

    /// What stood behind a failed attempt in its run has not been tried.
    fn end_run(&mut self, lane: LaneId) {
        for id in self.slots_of(lane) {
            if let Some(slot) = self.slots.get_mut(id).filter(|slot| slot.stage == Stage::InRun) {
                slot.stage = Stage::Queued;
            }
        }
    }

    /// An event is handled: what is stored of it goes, and the next of its lane may start.
    fn settle(&mut self, id: SlotId, now: Now) {
        let Some(slot) = self.slots.get(id) else { return };
        let (position, origin, lane) = (slot.position(), slot.origin, slot.lane);
        let parked = lane.filter(|_| origin == Origin::Redriven && self.keys.holds_behind(&slot.event));
        let parked = parked.map(|lane| (lane, slot.event.aggregate().to_owned()));
        self.leave(id, now);
        self.forget(position);
        self.pending.count();
        match origin {
            Origin::Stream => self.pass(position),
            Origin::Redriven => {
                self.letter_ended(position, true);
                if let Some((lane, aggregate)) = parked {
                    self.released(lane, aggregate, position);
                }
            }
            Origin::Again | Origin::Released => {
                if let Some(aside) = lane.and_then(|lane| self.lanes.get_mut(lane)?.aside.as_mut()) {
                    aside.changed = true;
                } else {
                    self.pass(position);
                }
            }
        }
        if let Some(lane) = lane {
            self.lanes.close_if_empty(lane);
        }
    }

    pub(super) fn has_held_dead(&self, lane: LaneId, position: Position) -> bool {
        let aggregate = self.lanes.get(lane).and_then(|lane| lane.aggregate(&self.slots));
        let held = aggregate.and_then(|aggregate| self.keys.get(&aggregate.to_owned()));
        held.is_some_and(|held| held.why == WhyHeld::Dead && held.from == position)
    }

    /// Takes an event out of its slot and its lane, and lets the next of the lane go on.
    fn leave(&mut self, id: SlotId, now: Now) {
        let Some((lane, next)) = self.slots.get(id).map(|slot| (slot.lane, slot.next)) else { return };
        self.vacate(id);
        let Some(lane) = lane.and_then(|lane| self.lanes.get_mut(lane)) else { return };
        lane.len -= 1;
        lane.blocked = false;
        lane.head = next;
        let Some(next) = next else {
            lane.tail = None;
            return;
        };
        match self.slots.get_mut(next) {
            Some(behind) if behind.stage == Stage::InRun => {
                behind.stage = Stage::Running;
                self.busy += 1;
            }
            Some(behind) if behind.stage == Stage::Queued => {
                let position = behind.position();
                self.recall(next, position, now);
            }
            _ => {}
        }
    }

    /// Drops what is stored of the event's attempts.
    pub(super) fn forget(&mut self, position: Position) {
        if !self.retries.is_empty() && self.retries.remove(&position).is_some() {
            self.pending.retry_ended(position);
        }
        if !self.crashes.is_empty() {
            self.crashes.remove(&position);
        }
        self.pending.start_ended(position);
    }

    /// What was recorded of the event's start is as before it. The count of deaths is that of *earlier* starts, so what
    /// is stored is one less than what the next process that finds it so will count.
    pub(super) fn unbegin(&mut self, id: SlotId) {
        let Some(slot) = self.slots.get(id) else { return };
        let position = slot.position();
        match self.crashes.get(&position) {
            Some(died) => self.pending.start_put_back(position, died.key_hash, died.crashes.saturating_sub(1)),
            None => self.pending.start_ended(position),
        }
    }

    /// Gives the event up: it settles once letter and held key are stored.
    pub(super) fn die(&mut self, id: SlotId, reason: DeadReason, now: Now) {
        let Some(slot) = self.slots.get(id) else { return };
        let position = slot.position();
        let redriven_alone = slot.origin == Origin::Redriven && !self.keys.holds_behind(&slot.event);
        let parks = self.parks(slot) && reason != DeadReason::AbandonedAtShutdown && !redriven_alone;
        let letter = slot.letter(reason, parks, now.wall);
        if parks {
            let held = self.keys.change(slot.event.aggregate().to_owned(), position, WhyHeld::Dead);
            self.keys.keep_back(&std::sync::Arc::clone(&slot.event));
            self.pending.hold(held);
        }
        if let Run::Executor { index, .. } = self.config.policies[slot.handler].run
            && self.config.mode == CheckpointMode::OnStart
        {
            self.uses[index].unstored += 1;
            self.unstored.push((self.pending.soon(), index));
        }
        // In the same write: once the letter is stored, a request may have the event started again.
        self.forget(position);
        let write = self.pending.dead(letter);
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.stage = Stage::Dying;
        slot.needs_write = write;
        if let Some(lane) = slot.lane.and_then(|lane| self.lanes.get_mut(lane)) {
            lane.blocked = true;
        }
        self.dying.push(id);
    }

    /// Settles the dead events whose letters are stored.
    pub(super) fn settle_written(&mut self, now: Now) {
        if self.dying.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.dying) {
            let Some(slot) = self.slots.get(id) else { continue };
            if self.pending.is_written(slot.needs_write) {
                self.settle_dead(id, now);
            } else {
                self.dying.push(id);
            }
        }
    }

    fn settle_dead(&mut self, id: SlotId, now: Now) {
        let Some(slot) = self.slots.get(id) else { return };
        let (position, origin, lane) = (slot.position(), slot.origin, slot.lane);
        let parks = self.keys.get(&slot.event.aggregate().to_owned());
        let parks = parks.is_some_and(|held| held.why == WhyHeld::Dead && held.from == position);
        self.held_part_changed(id);
        self.pending.count();
        if origin == Origin::Redriven {
            self.letter_failed(position);
        } else {
            self.counts.dead += 1;
        }
        match lane {
            // What is behind it in memory is parked: its key holds it.
            Some(lane) if parks => {
                let behind = self.slots_of(lane);
                for slot in behind.iter().skip(1).filter_map(|id| self.slots.get(*id)) {
                    self.keys.keep_back(&slot.event);
                    if slot.origin == Origin::Stream {
                        self.counts.parked += 1;
                        self.passed = self.passed.max(slot.position());
                    }
                }
                self.drop_lane(lane);
            }
            Some(lane) => {
                self.leave(id, now);
                self.lanes.close_if_empty(lane);
            }
            None => {
                self.vacate(id);
            }
        }
        if matches!(origin, Origin::Stream | Origin::Again) {
            self.pass(position);
        }
        self.pending.moved();
    }
}
