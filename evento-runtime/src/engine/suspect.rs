use std::time::Duration;

use evento_core::{CheckpointMode, Position, store::DeadReason};

use super::{
    Engine, Mutant, Now,
    slot::{Slot, SlotId, Slots, Stage},
};

/// So long an event that is to run alone holds back the others under its executor, for what runs to end: then they pass it,
/// for one of those may never return.
const PATIENCE: Duration = Duration::from_secs(10);

/// Events at which processes have died.
impl Engine {
    /// Whether processes have died twice at the event: it runs alone.
    fn is_suspect(&self, slot: &Slot) -> bool {
        self.crashes.get(&slot.position()).is_some_and(|started| started.crashes >= 2)
    }

    fn others_run(&self) -> bool {
        self.busy + self.recording.len() > 0
    }

    pub(super) fn may_run_beside_others(&self, id: SlotId) -> bool {
        if self.crashes.is_empty() {
            return true;
        }
        let runs = |slot: &Slot| matches!(slot.stage, Stage::Running | Stage::Recording);
        let suspect_runs = self.slots.iter().any(|slot| runs(slot) && self.is_suspect(slot));
        !suspect_runs && (!self.others_run() || self.slots.get(id).is_none_or(|slot| !self.is_suspect(slot)))
    }

    /// Whether the event has waited so long to run alone that others pass it.
    pub(super) fn is_passed_over(&self, id: SlotId, now: Now) -> bool {
        !self.crashes.is_empty()
            && self.others_run()
            && self.slots.get(id).is_some_and(|it| self.is_suspect(it) && now.since_start >= it.ready_since + PATIENCE)
    }

    /// When others pass events that wait to run alone.
    pub(super) fn passed_over_at(&self) -> impl Iterator<Item = Duration> {
        let any = self.crashes.values().any(|started| started.crashes >= 2);
        let slots = any.then_some(&self.slots).into_iter().flat_map(Slots::iter);
        let waiting = slots.filter(|slot| slot.stage == Stage::Ready && self.is_suspect(slot));
        waiting.map(|slot| slot.ready_since + PATIENCE)
    }

    /// Gives up an event at which processes have died too often.
    pub(super) fn is_killer(&mut self, id: SlotId, now: Now) -> bool {
        let Some(slot) = self.slots.get_mut(id) else { return true };
        let crashes = self.crashes.get(&slot.position()).map_or(0, |started| started.crashes);
        if crashes < self.config.max_crashes {
            return false;
        }
        let cause = format!("the process died {crashes} times while this event was being handled");
        slot.tried.get_or_insert_default().cause = vec![cause];
        self.die(id, DeadReason::KilledTheProcess, now);
        true
    }

    pub(super) fn is_guarded(&self, id: SlotId) -> bool {
        self.guard_until > Position::BEGINNING
            && self.slots.get(id).is_some_and(|slot| slot.position() <= self.guard_until)
    }

    pub(super) fn is_recorded_first(&self, id: SlotId) -> bool {
        self.config.mode == CheckpointMode::OnStart && !self.mutant(Mutant::StartBeforeRecord) || self.is_guarded(id)
    }

    /// Ends recorded starts of events that an earlier process had done with, once all that could still be theirs has been
    /// read again.
    pub(super) fn forget_passed_starts(&mut self) {
        let is_over = self.admitted >= self.guard_until
            && self.requests.is_idle()
            && self.asides == 0
            && self.unrecovered.is_empty()
            && self.off_slot.is_empty();
        if self.crashes.is_empty() || !is_over {
            return;
        }
        let in_memory = |at: &Position| self.slots.iter().any(|slot| slot.position() == *at);
        let passed = self.crashes.values().filter(|it| it.position <= self.passed && !self.keys.holds(it.key_hash));
        let passed: Vec<_> = passed.map(|it| it.position).filter(|at| !in_memory(at)).collect();
        for position in passed {
            self.forget(position);
        }
    }
}
