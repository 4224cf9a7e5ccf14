use evento_core::{CheckpointMode, Position, store::DeadReason};

use super::{
    Engine, Mutant, Now,
    slot::{Slot, SlotId, Stage},
};

/// Events at which processes have died.
impl Engine {
    /// An event at which processes have died twice runs alone.
    pub(super) fn may_run_beside_others(&self, id: SlotId) -> bool {
        if self.crashes.is_empty() {
            return true;
        }
        let is_suspect = |slot: &Slot| self.crashes.get(&slot.position()).is_some_and(|started| started.crashes >= 2);
        let others = self.busy + self.recording.len();
        let suspect_runs =
            self.slots.iter().any(|slot| is_suspect(slot) && matches!(slot.stage, Stage::Running | Stage::Recording));
        !suspect_runs && (others == 0 || self.slots.get(id).is_none_or(|slot| !is_suspect(slot)))
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
