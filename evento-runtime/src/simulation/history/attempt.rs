use super::*;

/// Whether an attempt may begin, and what comes of it.
impl History<'_> {
    /// A start under an executor has come out of the engine.
    pub(in super::super) fn decided(&mut self, handler: usize, executor: usize, now: u64) -> Check {
        let breaker = &mut self.breakers[handler];
        let Some(opened_at) = breaker.opened_at else { return Ok(()) };
        breaker.starts += 1;
        let mut allowed =
            if self.on_start() || self.guard > Position::BEGINNING { self.limits[executor].capacity } else { 0 };
        let (mut probe, mut delay) = (opened_at + 500_000, 1_000_000);
        while probe <= now {
            allowed += 1;
            probe += delay;
            delay = (delay * 2).min(30_000_000);
        }
        if self.breakers[handler].starts > allowed {
            return Err(format!(
                "{} attempts of handler {handler} although its breaker opened at {opened_at}",
                self.breakers[handler].starts
            ));
        }
        Ok(())
    }

    /// A handler begins.
    pub(in super::super) fn begin(
        &mut self,
        event: usize,
        attempt: u32,
        redelivery: Redelivery,
        store: &ModelStore,
        now: u64,
    ) -> Check {
        let at = self.at(event);
        let aggregate = self.log.events[event].aggregate;
        self.totals.starts += 1;
        if !self.taken.contains(event) {
            return Err(format!("{at} is started although no handler takes it"));
        }
        if self.running.iter().any(|(it, _)| *it == event) {
            return Err(format!("{at} runs twice at once"));
        }
        match redelivery {
            Redelivery::Dead => {
                self.totals.redelivered += 1;
                if !store.letters.contains_key(&at) {
                    return Err(format!("{at} is handled again as a dead event and has no letter"));
                }
            }
            Redelivery::Parked if self.was_parked[aggregate] >= event => {
                return Err(format!("{at} counts as released and was never parked"));
            }
            Redelivery::Parked | Redelivery::No => self.may_begin(event, attempt, redelivery, store, now)?,
        }
        if self.sequenced.contains(event) {
            let beside = self
                .running
                .iter()
                .find(|(it, _)| self.sequenced.contains(*it) && self.log.events[*it].aggregate == aggregate);
            if let Some((beside, _)) = beside {
                return Err(format!("{at} runs beside {} of its aggregate", self.at(*beside)));
            }
        }
        if redelivery == Redelivery::Dead {
            // Its crashes are counted anew for each request.
            self.events[event].kills = 0;
        }
        let happened = self.events[event];
        let alone = self.running.iter().find(|(it, _)| self.events[*it].kills >= 2 || happened.kills >= 2);
        if let Some((beside, _)) = alone {
            return Err(format!("{at} runs beside {}, and one of them killed two processes", self.at(*beside)));
        }
        if happened.kills >= MAX_CRASHES {
            return Err(format!("{at} is started although {} processes died at it", happened.kills));
        }
        if at <= self.guard && (!self.on_start() || self.inline.contains(event)) {
            match store.started.get(&at) {
                None => return Err(format!("{at} is started and that is not recorded, after a crash")),
                Some(started) if started.crashes != happened.kills && redelivery != Redelivery::Dead => {
                    return Err(format!(
                        "{at} has {} crashes on record and {} happened",
                        started.crashes, happened.kills
                    ));
                }
                Some(_) => {}
            }
        }
        self.totals.repeated += u64::from(happened.handled_in > 0 && redelivery == Redelivery::No);
        self.events[event].begun = happened.begun.max(attempt);
        self.running.push((event, redelivery));
        Ok(())
    }

    fn may_begin(&mut self, event: usize, attempt: u32, redelivery: Redelivery, store: &ModelStore, now: u64) -> Check {
        let (at, happened) = (self.at(event), self.events[event]);
        let aggregate = self.log.events[event].aggregate;
        if self.finals.contains(event) {
            return Err(format!("{at} is handled again although the checkpoint had passed it"));
        }
        if happened.handled_in == self.life {
            return Err(format!("{at} is handled twice by one process"));
        }
        if let Some(reason) = happened.dead {
            return Err(format!("{at} is started although it is dead: {reason}"));
        }
        if attempt != happened.attempts + 1 {
            return Err(format!("{at} has attempt {attempt} after {} that ended", happened.attempts));
        }
        if self.passes_at_start(event) {
            if attempt <= happened.begun {
                return Err(format!("attempt {attempt} of {at} is made again under OnStart"));
            }
            if !self.passed(store).contains(event) {
                return Err(format!("{at} is started before that is recorded"));
            }
        }
        if attempt > 1 {
            let stored = store.retries.get(&at).map(|retry| retry.attempts);
            if stored != Some(attempt - 1) {
                return Err(format!("attempt {attempt} of {at} starts and {stored:?} attempts are stored"));
            }
            if now < happened.due {
                return Err(format!("attempt {attempt} of {at} starts before it is due, at {}", happened.due));
            }
        }
        if self.sequenced.contains(event) {
            let mut earlier = below(event, |word| {
                self.unsettled.word(word) & self.of[aggregate].word(word) & self.sequenced.word(word)
            });
            if let Some(earlier) = earlier.next() {
                return Err(format!("{at} is started before {} of its aggregate has settled", self.at(earlier)));
            }
            let dead = self.parked_behind[aggregate].filter(|dead| *dead < event);
            if let Some(dead) = dead
                && !self.is_being_discarded(dead, store)
            {
                return Err(format!("{at} is started although {} of its aggregate is dead", self.at(dead)));
            }
        }
        if redelivery == Redelivery::No && !self.is_beside_the_stream(event) {
            self.stands_no_barrier(event)?;
        }
        Ok(())
    }

    pub(super) fn is_beside_the_stream(&self, event: usize) -> bool {
        self.sequenced.contains(event) && self.was_parked[self.log.events[event].aggregate] < event
    }

    fn stands_no_barrier(&self, event: usize) -> Check {
        let is_inline = self.inline.contains(event);
        let before =
            below(event, |word| self.unsettled.word(word) & if is_inline { u64::MAX } else { self.inline.word(word) });
        for earlier in before {
            if !self.is_beside_the_stream(earlier) {
                let what = if is_inline { "inline" } else { "past an inline event" };
                return Err(format!("{} runs {what} before {} has settled", self.at(event), self.at(earlier)));
            }
        }
        let beside = self.running.iter().find(|(it, redelivery)| {
            *redelivery == Redelivery::No && !self.is_beside_the_stream(*it) && (is_inline || self.inline.contains(*it))
        });
        match beside {
            Some((beside, _)) => Err(format!("{} runs beside {}, and one is inline", self.at(event), self.at(*beside))),
            None => Ok(()),
        }
    }

    /// A handler has returned, or was cut off.
    pub(in super::super) fn returned(&mut self, event: usize, outcome: &Outcome) {
        self.running.retain(|(it, _)| *it != event);
        if matches!(outcome, Outcome::Handled) {
            self.totals.handled += 1;
            self.events[event].handled_in = self.life;
            self.unsettled.remove(event);
            let parked_behind = &mut self.parked_behind[self.log.events[event].aggregate];
            if *parked_behind == Some(event) {
                *parked_behind = None;
            }
        }
    }

    /// The engine learns how an attempt ended.
    pub(in super::super) fn report(
        &mut self,
        event: usize,
        outcome: &Outcome,
        redelivery: Redelivery,
        random: u64,
        now: u64,
    ) {
        let Some(handler) = self.component.routes[self.log.events[event].name] else { return };
        let policy = &self.component.config.policies[handler];
        match outcome {
            Outcome::Handled => {
                self.breakers[handler] = Breaker::default();
                if redelivery != Redelivery::Dead {
                    self.reported.insert(event);
                }
            }
            Outcome::CutOff => {
                if redelivery != Redelivery::Dead && self.passes_at_start(event) {
                    self.events[event].dead = Some(DeadReason::AbandonedAtShutdown);
                }
            }
            Outcome::Failed(failure) => {
                let transient = matches!(failure.kind, FailureKind::Handler(Fault::Transient) | FailureKind::Overrun);
                let breaker = &mut self.breakers[handler];
                // Only a transient failure has the next probe wait longer.
                breaker.starts = breaker.starts.saturating_sub(usize::from(!transient));
                if transient {
                    breaker.failures += 1;
                    if breaker.failures == 5 {
                        breaker.opened_at = Some(now);
                    }
                }
                if redelivery != Redelivery::Dead {
                    self.failed(event, failure.kind, policy, random, now);
                }
            }
        }
    }

    fn failed(&mut self, event: usize, kind: FailureKind, policy: &Policy, random: u64, now: u64) {
        let spends = self.passes_at_start(event) && !policy.redeliver;
        let happened = &mut self.events[event];
        happened.attempts += 1;
        let (reason, spent) = match kind {
            FailureKind::Undecodable => (Some(DeadReason::Undecodable), 0),
            FailureKind::TooLarge => (Some(DeadReason::TooLarge), 0),
            FailureKind::Handler(Fault::Permanent) => (Some(DeadReason::Failed), 0),
            FailureKind::Handler(Fault::Transient) => (None, u32::from(spends)),
            FailureKind::Handler(Fault::Ordinary) | FailureKind::Overrun => (None, 1),
        };
        happened.spent += spent;
        let is_spent = spent > 0 && matches!(policy.budget, Budget::Times(more) if happened.spent > more);
        let reason = reason.or(is_spent.then_some(DeadReason::Failed));
        let delay = policy.backoff.delay(happened.attempts, random);
        happened.due = now + delay.as_micros() as u64;
        if let Some(reason) = reason {
            self.dies(event, reason);
        }
    }

    pub(super) fn dies(&mut self, event: usize, reason: DeadReason) {
        self.events[event].dead = Some(reason);
        if self.sequenced.contains(event)
            && self.component.config.on_dead == OnDead::Park
            && reason != DeadReason::AbandonedAtShutdown
        {
            let aggregate = self.log.events[event].aggregate;
            let first = self.parked_behind[aggregate].map_or(event, |dead| dead.min(event));
            self.parked_behind[aggregate] = Some(first);
            self.was_parked[aggregate] = self.was_parked[aggregate].min(event);
        }
    }
}
