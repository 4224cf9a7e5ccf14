use std::sync::Arc;

use evento_core::{RecordedEvent, store::DeadReason};

use super::{
    Engine, Now, Output, Slot, Start,
    active::{Active, Stage},
};

/// The events of the source, one at a time and in order.
impl Engine {
    /// Goes on with the stream's event, or admits its next.
    pub(super) fn step_stream(&mut self, now: Now, out: &mut Output) {
        if let Some(active) = self.active.take()
            && !self.go_on(Slot::Stream, active, now, out)
        {
            return;
        }
        if !self.admits(now) {
            return;
        }
        while self.active.is_none() && out.start.is_none() {
            let Some(event) = self.next_event() else { break };
            if let Some(handler) = self.admit(&event) {
                let active = self.take_up(event, handler, now);
                self.begin(Slot::Stream, active, now, out);
            }
        }
    }

    /// The stream's next event: what was open first, then the pages. None follows one that is out of order.
    fn next_event(&mut self) -> Option<Arc<RecordedEvent>> {
        if let Some(event) = self.recovered.pop_front() {
            return Some(event);
        }
        if self.recovering || !self.to_recover.is_empty() || self.out_of_order.is_some() {
            return None;
        }
        while let Some(page) = self.pages.front_mut() {
            if let Some(event) = page.events.as_slice().first() {
                if let Err(out_of_order) = self.order.check(event, self.pending.frontier()) {
                    self.out_of_order = Some(out_of_order);
                    return None;
                }
                return page.events.next();
            }
            let (from, to) = (self.pending.frontier(), page.scanned_to);
            self.pending.scanned(to);
            self.forget_retries_between(from, to);
            self.pages.pop_front();
        }
        None
    }

    /// An event with what is stored of its attempts.
    pub(super) fn take_up(&self, event: Arc<RecordedEvent>, handler: usize, now: Now) -> Active {
        let stored = self.retries.get(&event.position());
        Active::new(event, handler, stored, self.config.policies[handler], now)
    }

    /// Which handler takes the event now; `None` where it is settled instead.
    fn admit(&mut self, event: &RecordedEvent) -> Option<usize> {
        let position = event.position();
        let route = self.config.routes.get(event.name());
        if self.letters.remove(&position) || route.is_none() {
            self.counts.skipped += 1;
            self.settle_position(position, false);
            return None;
        }
        if self.keys.parks(event) {
            self.counts.parked += 1;
            self.settle_position(position, true);
            return None;
        }
        route
    }

    /// Goes on with an event that has a place already. Answers whether the place is free again.
    pub(super) fn go_on(&mut self, slot: Slot, active: Active, now: Now, out: &mut Output) -> bool {
        match active.stage {
            Stage::Dying if self.pending.is_written(active.needs_write) => {
                self.settle_dead(slot, &active);
                return true;
            }
            Stage::Recording if self.pending.is_written(active.needs_write) && self.admits(now) => {
                self.start(slot, active, out);
                return false;
            }
            Stage::Waiting { due }
                if due <= now.since_start && self.pending.is_written(active.needs_write) && self.admits(now) =>
            {
                self.begin(slot, active, now, out);
                return false;
            }
            Stage::Running | Stage::Dying | Stage::Recording | Stage::Waiting { .. } => {}
        }
        self.put_active(slot, active);
        false
    }

    /// Gives an event a place: it starts at once, or after its retry is due, or after its start is recorded.
    pub(super) fn begin(&mut self, slot: Slot, mut active: Active, now: Now, out: &mut Output) {
        let position = active.event.position();
        if let Stage::Waiting { due } = active.stage
            && due > now.since_start
        {
            self.put_active(slot, active);
            return;
        }
        let crashes = self.crashes.get(&position).copied().unwrap_or(0);
        if crashes >= self.config.max_crashes {
            active.cause = vec![format!("the process died {crashes} times while this event was being handled")];
            self.die(slot, &mut active, DeadReason::KilledTheProcess, now);
            self.put_active(slot, active);
        } else if position <= self.guard_until {
            active.stage = Stage::Recording;
            active.needs_write = self.pending.start(position, active.event.key_hash(), crashes);
            self.put_active(slot, active);
        } else {
            self.start(slot, active, out);
        }
    }

    pub(super) fn start(&mut self, slot: Slot, mut active: Active, out: &mut Output) {
        active.stage = Stage::Running;
        let position = active.event.position();
        out.start = Some(Start {
            slot,
            event: Arc::clone(&active.event),
            handler: active.handler,
            attempt: active.attempts.saturating_add(1),
            replay: self.replay.as_ref().is_some_and(|replay| replay.contains(position)),
        });
        self.running = Some(slot);
        self.put_active(slot, active);
    }

    pub(super) fn take_active(&mut self, slot: Slot) -> Option<Active> {
        match slot {
            Slot::Stream => self.active.take(),
            Slot::Drain(id) => self.drains.take_active(id),
        }
    }

    pub(super) fn put_active(&mut self, slot: Slot, active: Active) {
        match slot {
            Slot::Stream => self.active = Some(active),
            Slot::Drain(id) => self.drains.put_active(id, active),
        }
    }
}
