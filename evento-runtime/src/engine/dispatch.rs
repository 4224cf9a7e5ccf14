use std::time::Duration;

use evento_core::{CheckpointMode, Position};

use super::{
    Engine, Job, Mutant, Now, Output, Run, Start,
    slot::{Origin, Slot, SlotId, Stage},
};

/// The most events of one aggregate that one permit carries.
const LONGEST_RUN: usize = 32;

impl Engine {
    /// How many more permits of an executor could be used now.
    pub(crate) fn wants(&self, executor: usize, now: Now) -> usize {
        if !self.admits(now) || (self.config.mode == CheckpointMode::OnStart && self.pending.is_writing()) {
            return 0;
        }
        let used = &self.uses[executor];
        let startable = used.handlers.iter().map(|&handler| self.startable(handler, now));
        let startable = startable.fold(0, usize::saturating_add);
        startable.min(self.room_to_start(executor)).saturating_sub(used.granted)
    }

    fn startable(&self, handler: usize, now: Now) -> usize {
        let ready = self.ready[handler].len();
        if self.mutant(Mutant::NoBreaker) {
            return ready;
        }
        ready.min(self.breakers[handler].admits(now.since_start))
    }

    /// Under `OnStart` a crash costs what runs, what has been recorded and what has failed and is not yet stored: of
    /// all these there are never more than the executor has permits.
    fn room_to_start(&self, executor: usize) -> usize {
        let used = &self.uses[executor];
        if self.config.mode == CheckpointMode::Watermark {
            return used.limits.capacity.saturating_sub(used.running);
        }
        (used.limits.capacity + self.config.start_ahead).saturating_sub(used.running + used.unstored)
    }

    /// Spends the permits at hand, and says what else is to be done.
    pub(crate) fn dispatch(&mut self, now: Now, out: &mut Output) {
        self.start_recorded(out);
        if self.admits(now) {
            for executor in 0..self.uses.len() {
                self.start_under(executor, now, out);
            }
            self.start_inline(now, out);
        }
        for used in &mut self.uses {
            used.returned += std::mem::take(&mut used.granted);
        }
        if !self.stopping {
            self.ask(now, out);
        }
        let idle = self.busy == 0 && self.next.is_none() && self.pages.is_empty() && self.recovered.is_empty();
        // A write that has not been taken from `out` yet counts as under way.
        if self.pending.is_due(idle, self.stopping, now.since_start) {
            out.commit = Some(self.write());
        } else if let Some(again) = self.pending.again(self.stopping, now.since_start) {
            out.commit = Some(again);
        }
        out.wake_at = [self.pending.wake_at(), self.next_due(now)].into_iter().flatten().min();
    }

    /// Makes an event ready; `first` puts it before those that are.
    pub(super) fn make_ready(&mut self, id: SlotId, now: Now, first: bool) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.stage = Stage::Ready;
        slot.ready_since = now.since_start;
        let handler = slot.handler;
        if let Run::Executor { index, .. } = self.config.policies[handler].run {
            self.uses[index].fresh += 1;
        }
        let ready = &mut self.ready[handler];
        if first { ready.push_front(id) } else { ready.push_back(id) }
    }

    /// Has an event wait for its next attempt.
    pub(super) fn wait_until(&mut self, id: SlotId, due: Duration) {
        let due = if self.mutant(Mutant::RetryTooEarly) { due / 2 } else { due };
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.stage = Stage::Waiting { due };
        let (handler, lane) = (slot.handler, slot.lane);
        self.waiting_of(handler).insert((due, id));
        if let Some(lane) = lane.and_then(|lane| self.lanes.get_mut(lane)) {
            lane.blocked = true;
        }
    }

    /// Makes ready what is due, as far as it is stored.
    pub(super) fn wake_due(&mut self, now: Now) {
        for executor in 0..=self.uses.len() {
            loop {
                let waiting = match self.uses.get_mut(executor) {
                    Some(used) => &mut used.waiting,
                    None => &mut self.inline_waiting,
                };
                let due = waiting.iter().take_while(|(due, _)| *due <= now.since_start);
                let stored = due
                    .map(|&(due, id)| (due, id))
                    .find(|(_, id)| self.slots.get(*id).is_some_and(|slot| self.pending.is_written(slot.needs_write)));
                let Some(next) = stored else { break };
                waiting.remove(&next);
                if let Some(lane) = self.slots.get(next.1).and_then(|slot| slot.lane)
                    && let Some(lane) = self.lanes.get_mut(lane)
                {
                    lane.blocked = false;
                }
                self.make_ready(next.1, now, true);
            }
        }
    }

    /// The ready event of an executor that is to start next: the one that has been taken in first.
    fn next_ready(&self, executor: usize, now: Now) -> Option<(usize, usize, SlotId)> {
        let since = |id| self.slots.get(id).map(|slot| (slot.ready_since, slot.position()));
        let mut next: Option<(usize, usize, SlotId)> = None;
        for &handler in &self.uses[executor].handlers {
            if self.startable(handler, now) == 0 {
                continue;
            }
            let Some(at) = self.ready[handler].iter().position(|id| !self.is_passed_over(*id, now)) else { continue };
            let id = self.ready[handler][at];
            if next.is_none_or(|(.., earlier)| since(id) < since(earlier)) {
                next = Some((handler, at, id));
            }
        }
        next
    }

    fn start_under(&mut self, executor: usize, now: Now, out: &mut Output) {
        while self.uses[executor].granted > 0 && self.room_to_start(executor) > 0 {
            let Some((handler, at, id)) = self.next_ready(executor, now) else { break };
            if !self.may_run_beside_others(id) {
                break;
            }
            self.ready[handler].remove(at);
            if self.is_killer(id, now) {
                continue;
            }
            self.breakers[handler].started();
            let used = &mut self.uses[executor];
            used.granted -= 1;
            used.running += 1;
            used.fresh = used.fresh.saturating_sub(1);
            if let Some(slot) = self.slots.get(id)
                && now.since_start >= slot.ready_since + Duration::from_secs(1)
            {
                self.counts.submit_timeouts += 1;
            }
            let recorded = self.is_recorded_first(id);
            self.begin(id, recorded, Some(executor), out);
        }
        let used = &mut self.uses[executor];
        let ready: usize = used.handlers.iter().map(|&handler| self.ready[handler].len()).sum();
        used.rejected += std::mem::take(&mut used.fresh).min(ready) as u64;
    }

    fn start_inline(&mut self, now: Now, out: &mut Output) {
        while self.inline_busy.is_none() {
            // The stream's event and those read again take turns.
            let mut next: Option<(usize, usize, SlotId)> = None;
            for (handler, policy) in self.config.policies.iter().enumerate() {
                if policy.run != Run::Inline {
                    continue;
                }
                for (at, &id) in self.ready[handler].iter().enumerate() {
                    let is_stream = self.barrier == Some(id);
                    if next.is_none() || is_stream == self.turn {
                        next = Some((handler, at, id));
                        if is_stream == self.turn {
                            break;
                        }
                    }
                }
            }
            let Some((handler, at, id)) = next else { return };
            if !self.may_run_beside_others(id) {
                return;
            }
            self.turn = self.barrier != Some(id);
            self.ready[handler].remove(at);
            if self.is_killer(id, now) {
                continue;
            }
            self.inline_busy = Some(id);
            let recorded = self.is_guarded(id);
            self.begin(id, recorded, None, out);
        }
    }

    /// Starts an event that has its permit, at once or after its start is recorded.
    fn begin(&mut self, id: SlotId, recorded: bool, executor: Option<usize>, out: &mut Output) {
        if !recorded {
            self.run(id, executor, out);
            return;
        }
        let crashes = if self.crashes.is_empty() {
            0
        } else {
            let started = self.slots.get(id).and_then(|slot| self.crashes.get(&slot.position()));
            started.map_or(0, |started| started.crashes)
        };
        let guarded = self.is_guarded(id) && (executor.is_none() || self.config.mode == CheckpointMode::Watermark);
        // A held key goes on behind what is recorded as started.
        self.held_part_changed(id);
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.stage = Stage::Recording;
        slot.needs_write = if guarded {
            self.pending.start(slot.event.position(), slot.event.key_hash(), crashes)
        } else {
            self.pending.soon()
        };
        self.recording.push(id);
    }

    /// Starts what the last write recorded.
    fn start_recorded(&mut self, out: &mut Output) {
        if self.recording.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.recording) {
            let Some(slot) = self.slots.get(id) else { continue };
            if !self.pending.is_written(slot.needs_write) {
                self.recording.push(id);
                continue;
            }
            let executor = match self.config.policies[slot.handler].run {
                Run::Inline => None,
                Run::Executor { index, .. } => Some(index),
            };
            self.run(id, executor, out);
        }
    }

    /// Hands an event to its handler, under `Watermark` with those behind it in its lane.
    fn run(&mut self, id: SlotId, executor: Option<usize>, out: &mut Output) {
        let Some(mut next) = self.slots.get(id).map(|slot| slot.next) else { return };
        self.busy += 1;
        let Some(index) = executor else {
            out.inline = self.job(id, Stage::Running).map(|job| Start { executor, job, more: Vec::new() });
            return;
        };
        let mut more = Vec::new();
        if self.config.mode == CheckpointMode::Watermark && self.guard_until == Position::BEGINNING {
            while let Some(slot) = next.and_then(|id| self.slots.get(id)) {
                let Run::Executor { index: runs_under, .. } = self.config.policies[slot.handler].run else { break };
                let breaks = self.breakers[slot.handler].is_open();
                if more.len() + 1 >= LONGEST_RUN || runs_under != index || breaks || slot.stage != Stage::Queued {
                    break;
                }
                let (Some(id), after) = (next, slot.next) else { break };
                if !self.retries.is_empty() && self.retries.contains_key(&slot.position()) {
                    break;
                }
                more.extend(self.job(id, Stage::InRun));
                next = after;
            }
        }
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.stage = Stage::Running;
        out.starts.push(Start { executor, job: slot.job(id, self.replay.as_ref()), more });
    }

    pub(super) fn job(&mut self, id: SlotId, stage: Stage) -> Option<Job> {
        let slot = self.slots.get_mut(id)?;
        slot.stage = stage;
        Some(slot.job(id, self.replay.as_ref()))
    }

    /// Takes back a recorded start that has not begun.
    pub(super) fn put_back(&mut self, id: SlotId) {
        self.unbegin(id);
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.stage = Stage::Ready;
        let handler = slot.handler;
        self.pending.soon();
        self.held_part_changed(id);
        self.ready[handler].push_front(id);
        match self.config.policies[handler].run {
            Run::Inline => self.inline_busy = None,
            Run::Executor { index, .. } => {
                self.breakers[handler].withdrawn();
                self.uses[index].running -= 1;
                self.uses[index].returned += 1;
            }
        }
    }

    pub(super) fn waiting_of(&mut self, handler: usize) -> &mut std::collections::BTreeSet<(Duration, SlotId)> {
        match self.config.policies[handler].run {
            Run::Inline => &mut self.inline_waiting,
            Run::Executor { index, .. } => &mut self.uses[index].waiting,
        }
    }

    /// When the next thing is due that no input tells of.
    fn next_due(&self, now: Now) -> Option<Duration> {
        if self.paused || self.stopping {
            return None;
        }
        let retry = |waiting: &std::collections::BTreeSet<(Duration, SlotId)>| {
            let stored = waiting
                .iter()
                .find(|(_, id)| self.slots.get(*id).is_some_and(|slot| self.pending.is_written(slot.needs_write)));
            stored.map(|(due, _)| *due)
        };
        let retries = self.uses.iter().map(|used| retry(&used.waiting)).chain([retry(&self.inline_waiting)]).flatten();
        let probes = self.breakers.iter().enumerate().filter(|(handler, _)| !self.ready[*handler].is_empty());
        let probes = probes.filter_map(|(_, breaker)| breaker.probe_at());
        let held = self.lanes.aside.iter().filter_map(|lane| self.lanes.get(*lane)?.aside.as_ref());
        let held = held.map(|aside| aside.due).filter(|due| *due > Duration::ZERO);
        let returning = self.off_slot.iter().filter(|(position, _)| !self.returning.contains(position));
        let due = retries.chain(probes).chain(held).chain(returning.map(|(_, due)| *due)).chain(self.passed_over_at());
        // What is due already waits for something else, which brings a turn of its own.
        due.filter(|due| *due > now.since_start).min()
    }

    // ---- what a checkpoint says

    /// Whether the checkpoint counts the event as passed.
    pub(super) fn is_passed(&self, slot: &Slot) -> bool {
        let inline = self.config.policies[slot.handler].run == Run::Inline;
        if self.mutant(Mutant::CheckpointOnCompletion) && slot.stage == Stage::Running {
            return self.config.mode == CheckpointMode::Watermark;
        }
        if self.mutant(Mutant::DeadBeforeDurable) && slot.stage == Stage::Dying {
            return true;
        }
        !inline
            && self.config.mode == CheckpointMode::OnStart
            && matches!(slot.stage, Stage::Recording | Stage::Running | Stage::Dying)
    }

    /// The next write: what changed, and what is open.
    fn write(&mut self) -> evento_core::store::Commit {
        for id in &self.recording {
            if let Some(slot) = self.slots.get(*id)
                && self.is_passed(slot)
            {
                self.passed = self.passed.max(slot.position());
            }
        }
        self.held_changes();
        let frontier = if self.mutant(Mutant::WatermarkPlusOne) {
            let next = self.next.as_ref().or_else(|| self.pages.front()?.events.as_slice().first());
            next.map_or(self.passed, |event| self.passed.max(event.position()))
        } else {
            self.passed
        };
        // What was read again for a held key is named by the key, for as long as it is held.
        let is_held =
            |slot: &Slot| slot.lane.and_then(|lane| self.lanes.get(lane)).is_some_and(|it| it.aside.is_some());
        let in_slots = self.slots.iter().filter(|slot| slot.origin == Origin::Stream || !is_held(slot));
        let in_slots = in_slots.filter(|slot| slot.origin != Origin::Redriven && !self.is_passed(slot));
        let mut open: Vec<_> = in_slots.map(Slot::position).filter(|position| *position <= frontier).collect();
        if self.mutant(Mutant::OpenForgotten) {
            open.pop();
        }
        open.extend(self.unrecovered.iter().chain(self.off_slot.keys()).copied());
        open.sort_unstable();
        open.dedup();
        let mut commit = self.pending.write(frontier, open);
        if self.mutant(Mutant::HeldForgotten) {
            commit.held.clear();
        }
        if self.mutant(Mutant::DeadBeforeDurable) && self.pending.last_written().is_multiple_of(2) {
            for letter in commit.dead.drain(..) {
                self.pending.dead(letter);
            }
        }
        commit
    }
}
