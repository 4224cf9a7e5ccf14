use super::{
    Engine, Job, Now, Run,
    slot::{Origin, Slot, SlotId, Stage},
};

/// Inline events that follow one another while nothing else is under way: what most consumers do most of the time.
impl Engine {
    /// An inline attempt was handled: settles its event and hands out the next one in its place, where that is all there is
    /// to do. Otherwise nothing has happened, and the whole turn is to be taken.
    pub(crate) fn straight_on(&mut self, id: SlotId, now: Now) -> Option<Job> {
        if !self.goes_straight_on(id, now) {
            return None;
        }
        let event = self.pages.front()?.events.as_slice().first()?;
        let handler = self.config.routes.get(event.name())?;
        // One that is out of order is found again by the whole turn.
        if self.config.policies[handler].run != Run::Inline || self.order.check(event, self.admitted).is_err() {
            return None;
        }
        let event = self.pages.front_mut()?.events.next()?;
        let slot = self.slots.get_mut(id)?;
        let settled = slot.position();
        self.bytes = self.bytes + event.size() - slot.event.size();
        self.breakers[slot.handler].succeeded();
        self.admitted = event.position();
        *slot = Slot { stage: Stage::Running, ..Slot::new(event, handler, Origin::Stream) };
        self.counts.handled += 1;
        self.pending.count();
        self.pass(settled);
        self.job(id, Stage::Running)
    }

    fn goes_straight_on(&self, id: SlotId, now: Now) -> bool {
        let alone = self.barrier == Some(id) && self.inline_busy == Some(id) && self.slots.len() == 1;
        let untroubled = self.retries.is_empty()
            && self.crashes.is_empty()
            && self.keys.is_empty()
            && self.letters.is_empty()
            && self.requests.is_idle()
            && self.slots.get(id).is_some_and(|slot| slot.tried.is_none() && slot.origin == Origin::Stream)
            && self.guard_until < self.admitted;
        let nothing_before = self.next.is_none()
            && !self.recovering
            && self.recovered.is_empty()
            && self.to_recover.is_empty()
            && self.unrecovered.is_empty()
            && self.off_slot.is_empty()
            && self.out_of_order.is_none();
        alone && untroubled && nothing_before && self.pending.leaves_alone(now.since_start) && self.admits(now)
    }
}
