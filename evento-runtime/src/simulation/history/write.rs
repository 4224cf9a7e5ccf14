use super::*;

/// Whether a checkpoint may say what it says.
impl History<'_> {
    /// The engine wants a write; answers what it knows to be handled.
    pub(in super::super) fn made(&mut self, commit: &Commit, store: &ModelStore) -> Check<Bits> {
        for letter in &commit.dead {
            let event = self.log.index(letter.position);
            let happened = self.events[event];
            if store.letters.contains_key(&letter.position) {
                continue;
            }
            if letter.reason == DeadReason::KilledTheProcess {
                if happened.kills < MAX_CRASHES {
                    return Err(format!("{} is given up after {} crashes", letter.position, happened.kills));
                }
                self.totals.killed += 1;
                self.dies(event, letter.reason);
            } else if happened.dead != Some(letter.reason) {
                return Err(format!(
                    "{} is given up as {} and is {:?}: {} attempts, {} spent",
                    letter.position, letter.reason, happened.dead, happened.attempts, happened.spent
                ));
            } else if letter.attempts != happened.attempts {
                return Err(format!(
                    "{} is given up after {} attempts, not {}",
                    letter.position, letter.attempts, happened.attempts
                ));
            }
        }
        for retry in &commit.retries {
            let event = self.log.index(retry.position);
            let happened = self.events[event];
            let policy = self.policy(event);
            let due = super::super::store::wall(happened.due).0;
            let early = policy.is_none_or(|_| (retry.not_before.0 - due).abs() > 1);
            if (retry.attempts, retry.spent) != (happened.attempts, happened.spent) || early {
                return Err(format!("{retry:?} is stored, and {happened:?} is so"));
            }
        }
        for position in &commit.dead_ended {
            let event = self.log.index(*position);
            if self.events[event].handled_in == 0 && !self.is_being_discarded(event, store) {
                return Err(format!("the letter of {position} goes, and it was neither handled nor discarded"));
            }
            let aggregate = self.log.events[event].aggregate;
            if self.parked_behind[aggregate] == Some(event) {
                // Another of the aggregate may have died since.
                let of_aggregate = |letter: &&evento_core::store::DeadEvent| {
                    letter.parks && self.log.events[self.log.index(letter.position)].aggregate == aggregate
                };
                let next = commit.dead.iter().filter(of_aggregate).map(|letter| self.log.index(letter.position)).min();
                self.parked_behind[aggregate] = next;
            }
        }
        // A parked event begins anew once it is released.
        for position in commit.started_ended.iter().chain(&commit.retries_ended) {
            let event = self.log.index(*position);
            if self.is_parked(event) {
                self.events[event] = Happened { handled_in: self.events[event].handled_in, ..Happened::default() };
            }
        }
        Ok(self.reported.clone())
    }

    /// A write has been applied: would a crash now lose or repeat what it must not?
    pub(in super::super) fn stored(&mut self, dead: &[Position], reported: &Bits, store: &ModelStore) -> Check {
        for position in dead {
            let event = self.log.index(*position);
            self.unsettled.remove(event);
            self.events[event].kills = 0;
            self.totals.dead += 1;
        }
        let passed = self.passed(store);
        let end = self.events.len();
        let inline_only = self.on_start();
        let unhandled = |word: usize| passed.word(word) & self.unsettled.word(word);
        let mut lost = below(end, |word| unhandled(word) & if inline_only { self.inline.word(word) } else { u64::MAX });
        if let Some(lost) = lost.next() {
            return Err(format!("the checkpoint has passed {}, which has not settled", self.named(lost)));
        }
        if inline_only {
            for (index, under) in self.under.iter().enumerate() {
                let exposed = || below(end, |word| unhandled(word) & under.word(word));
                let bound = self.limits[index].capacity + self.component.config.start_ahead;
                if exposed().count() > bound {
                    let exposed: Vec<_> = exposed().map(|event| self.named(event)).collect();
                    return Err(format!("a crash now would lose {exposed:?} of executor {index}, not {bound} events"));
                }
            }
        }
        let mut again = below(end, |word| reported.word(word) & !passed.word(word));
        if let Some(again) = again.next() {
            return Err(format!("{} had settled before the write, which does not say so", self.at(again)));
        }
        Ok(())
    }

    /// What the stored checkpoint counts as passed.
    pub(super) fn passed(&self, store: &ModelStore) -> Bits {
        let mut passed = self.taken.clone();
        passed.remove_from(self.log.up_to(store.frontier), |_| u64::MAX);
        for open in &store.open {
            passed.remove(self.log.index(*open));
        }
        for held in store.held.values() {
            let aggregate: usize = held.aggregate.id().parse().unwrap_or_default();
            passed.remove_from(self.log.index(held.from), |word| {
                self.of[aggregate].word(word) & self.sequenced.word(word)
            });
        }
        passed
    }

    pub(super) fn is_being_discarded(&self, event: usize, store: &ModelStore) -> bool {
        let logged = &self.log.events[event];
        store.requests.iter().any(|request| {
            request.action == Action::Discard
                && targets(request, logged.position, &self.log.aggregates[logged.aggregate])
        })
    }

    /// Another process takes over.
    pub(in super::super) fn restart(&mut self, store: &ModelStore, clean: bool, guard: Option<Position>) -> Check {
        let passed = self.passed(store);
        self.life += 1;
        self.guard = guard.unwrap_or_default();
        self.running.clear();
        self.breakers.fill(Breaker::default());
        self.parked_behind.fill(None);
        for held in store.held.values().filter(|held| held.why == evento_core::store::WhyHeld::Dead) {
            let aggregate: usize = held.aggregate.id().parse().unwrap_or_default();
            let event = self.log.index(held.from);
            self.parked_behind[aggregate] = Some(event);
            self.was_parked[aggregate] = self.was_parked[aggregate].min(event);
        }
        for event in below(self.events.len(), |word| self.taken.word(word)) {
            let at = self.log.events[event].position;
            let letter = store.letters.get(&at);
            let is_passed = passed.contains(event);
            let is_unsettled = self.unsettled.contains(event);
            let happened = &mut self.events[event];
            self.finals.put(event, is_passed);
            if is_passed && is_unsettled {
                if clean {
                    return Err(format!("{at} is lost by a clean stop"));
                }
                self.lost.insert(event);
                self.unsettled.remove(event);
                self.totals.lost += 1;
            }
            if !is_passed {
                if clean && happened.handled_in > 0 && letter.is_none() && self.reported.contains(event) {
                    return Err(format!("{at} was handled, and is to be handled again after a clean stop"));
                }
                self.unsettled.put(event, letter.is_none());
                self.reported.remove(event);
            }
            let retry = store.retries.get(&at);
            happened.attempts = retry.map_or(0, |retry| retry.attempts);
            happened.spent = retry.map_or(0, |retry| retry.spent);
            happened.due = retry.map_or(0, |retry| (retry.not_before.0 - super::super::store::wall(0).0).max(0) as u64);
            happened.dead = letter.map(|letter| letter.reason);
            happened.kills =
                store.started.get(&at).map_or(0, |started| if guard.is_some() { started.crashes + 1 } else { 0 });
        }
        Ok(())
    }
}

fn targets(request: &StoredRequest, position: Position, aggregate: &evento_core::Aggregate) -> bool {
    match &request.target {
        Target::Event(at) => *at == position,
        Target::Aggregate(of) => of == aggregate,
        Target::Consumer => true,
    }
}
