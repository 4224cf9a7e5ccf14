use super::*;

/// Handlers at work.
impl World<'_> {
    pub(super) fn begin(&mut self, consumer: usize, start: Start) -> Check {
        let Consumer { process: Some(process), history, .. } = &mut self.consumers[consumer] else { return Ok(()) };
        if let Some(executor) = start.executor {
            history.decided(start.job.handler, executor, self.now)?;
        }
        let jobs = std::iter::once(start.job).chain(start.more);
        let jobs = jobs.map(|job| {
            let redelivery = process.engine.redelivery(job.slot);
            (job, redelivery)
        });
        let run = Attempts { consumer, executor: start.executor, jobs: jobs.collect(), next: 0, done: false };
        self.runs.push(run);
        if let Some(executor) = start.executor {
            self.running[executor] += 1;
            let capacity = self.scenario.executors[executor].capacity;
            if self.running[executor] > capacity {
                return Err(format!("executor {executor} runs {} of {capacity}", self.running[executor]));
            }
        }
        self.attempt(self.runs.len() - 1)
    }

    /// A handler begins: the next of its run.
    fn attempt(&mut self, run: usize) -> Check {
        let Attempts { consumer, executor, ref jobs, next, .. } = self.runs[run];
        let (job, redelivery) = &jobs[next];
        let (redelivery, handler, attempt) = (*redelivery, job.handler, job.attempt);
        let (position, event) = (job.event.position(), self.scenario.log.index(job.event.position()));
        self.say(format_args!(
            "{consumer}: start {position} of {} attempt {attempt} under {executor:?}{}",
            self.scenario.log.events[event].aggregate,
            if redelivery == Redelivery::No { "" } else { ", again" }
        ));
        let Consumer { history, store, down_until, .. } = &mut self.consumers[consumer];
        history.begin(event, attempt, redelivery, store, self.now)?;
        let behaviour = self.scenario.consumers[consumer].handlers[handler];
        let slow = if self.random.chance(30) { 20 } else { 1 };
        let takes = self.random.below(behaviour.takes * slow);
        if self.scenario.killer == Some(event) && redelivery != Redelivery::Dead {
            self.at(takes, consumer, What::Returns { run, returns: Returns::Kills });
            return Ok(());
        }
        if self.left.hangs > 0 && self.random.chance(5) {
            self.left.hangs -= 1;
            self.say(format_args!("{consumer}: {position} will never return"));
            return Ok(());
        }
        let roll = self.random.below(1000);
        let is_undecodable = (event as u64 * 7919) % 1000 < behaviour.undecodable;
        let mut upper = 0;
        let mut falls_in = |per_mille: u64| {
            upper += per_mille;
            roll < upper
        };
        let returns = if is_undecodable {
            Returns::Failed(FailureKind::Undecodable)
        } else if self.now < down_until[handler] {
            Returns::Failed(FailureKind::Handler(Fault::Transient))
        } else if falls_in(behaviour.ordinary) {
            Returns::Failed(FailureKind::Handler(Fault::Ordinary))
        } else if falls_in(behaviour.transient) {
            Returns::Failed(FailureKind::Handler(Fault::Transient))
        } else if falls_in(behaviour.permanent) {
            Returns::Failed(FailureKind::Handler(Fault::Permanent))
        } else if falls_in(behaviour.overrun) {
            Returns::Failed(FailureKind::Overrun)
        } else {
            Returns::Handled
        };
        self.at(takes, consumer, What::Returns { run, returns });
        Ok(())
    }

    /// A handler returns.
    pub(super) fn returns(&mut self, run: usize, returns: Returns) -> Check {
        if self.runs[run].done {
            return Ok(());
        }
        let outcome = match returns {
            Returns::Handled => Outcome::Handled,
            Returns::Failed(kind) => Outcome::Failed(Box::new(Failure { kind, cause: vec![] })),
            Returns::Kills => {
                self.killed = true;
                return Ok(());
            }
        };
        let handled = matches!(outcome, Outcome::Handled);
        self.ended(run, outcome);
        let Attempts { consumer, ref jobs, ref mut next, .. } = self.runs[run];
        if handled && *next + 1 < jobs.len() {
            *next += 1;
            self.attempt(run)?;
        } else {
            self.runs[run].done = true;
        }
        match self.random.below(4) {
            // A worker keeps a few to itself.
            0 => {
                let delay = self.random.below(3_000);
                self.at(delay, consumer, What::Flush);
                Ok(())
            }
            _ => self.turn(consumer),
        }
    }

    pub(super) fn ended(&mut self, run: usize, outcome: Outcome) {
        let Attempts { consumer, executor, ref jobs, next, .. } = self.runs[run];
        let last = next + 1 == jobs.len() || !matches!(outcome, Outcome::Handled);
        let (job, redelivery) = &jobs[next];
        let (position, redelivery, slot) = (job.event.position(), *redelivery, job.slot);
        let event = self.scenario.log.index(position);
        let kind = match &outcome {
            Outcome::Failed(failure) => Some(failure.kind),
            _ => None,
        };
        self.say(format_args!(
            "{consumer}: end {position} {}",
            match kind {
                Some(kind) => format!("{kind:?}"),
                None => format!("{outcome:?}"),
            }
        ));
        let of = &mut self.consumers[consumer];
        of.history.returned(event, &outcome);
        if let Some(process) = &mut of.process {
            process.ended.push(Ended { slot, event, outcome, redelivery, last });
        }
        if let Some(executor) = executor.filter(|_| last) {
            self.running[executor] -= 1;
        }
    }
}
