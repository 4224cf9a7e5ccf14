use evento_core::store::{Action, RequestId, RequestState, StoredRequest, Target};

use super::*;

/// What happens by itself.
impl World<'_> {
    /// Nothing is under way and no timer is set. Answers whether everything has come to its end.
    pub(super) fn nothing_happens(&mut self) -> Check<bool> {
        let hangs = self.consumers.iter().any(|consumer| consumer.history.is_running());
        if self.stopping {
            if hangs {
                self.cut_off()?;
                return self.after_quiet();
            }
            return Err("stopping never ends".to_owned());
        }
        let paused = |consumer: &Consumer<'_>| consumer.process.as_ref().is_some_and(|process| process.paused);
        if let Some(consumer) = self.consumers.iter().position(paused) {
            self.resume(consumer)?;
            return Ok(false);
        }
        if hangs {
            for consumer in &self.consumers {
                if self.consumers.len() == 1
                    && let Some(waits) = consumer.history.is_kept_waiting(self.appended)
                {
                    let engine = consumer.process.as_ref().map(|process| &process.engine);
                    return Err(format!("{waits} does not go on beside attempts that never return: {engine:?}"));
                }
            }
            self.crash()?;
            return Ok(false);
        }
        if self.appended < self.scenario.log.events.len() {
            self.append();
            return Ok(false);
        }
        let head = self.head();
        for (index, consumer) in self.consumers.iter().enumerate() {
            if let Some(process) = &consumer.process
                && process.engine.settled_to() < head
            {
                return Err(format!(
                    "consumer {index} stands still: settled to {} of {head}, {:?}",
                    process.engine.settled_to(),
                    process.engine
                ));
            }
        }
        self.left = Left { crashes: 0, stops: 0, pauses: 0, outages: 0, downs: 0, requests: 0, hangs: 0 };
        self.ending = true;
        self.stop()?;
        self.after_quiet()
    }

    /// A stop may be done with at once.
    fn after_quiet(&mut self) -> Check<bool> {
        if !self.are_stopped() || !self.queue.is_empty() {
            return Ok(false);
        }
        if self.ending {
            self.end()?;
            return Ok(true);
        }
        self.restart()?;
        Ok(false)
    }

    pub(super) fn something_goes_wrong(&mut self) -> Check {
        if self.appended < self.scenario.log.events.len() && self.random.chance(60) {
            self.append();
        }
        if !self.random.chance(20) {
            return Ok(());
        }
        let consumer = self.random.index(self.consumers.len());
        match self.random.below(12) {
            0 | 1 if self.left.crashes > 0 => {
                self.left.crashes -= 1;
                return self.crash();
            }
            2 if self.left.stops > 0 && !self.stopping => {
                self.left.stops -= 1;
                return self.stop();
            }
            3 if self.left.pauses > 0 => {
                self.left.pauses -= 1;
                self.say(format_args!("pause"));
                if let Some(process) = &mut self.consumers[consumer].process {
                    process.engine.pause();
                    process.paused = true;
                }
            }
            4 => return self.resume(consumer),
            5 if self.left.outages > 0 => {
                self.left.outages -= 1;
                self.store_down_until = self.now + self.random.below(3_000_000);
                self.say(format_args!("the store is down"));
            }
            6 if self.left.downs > 0 => {
                self.left.downs -= 1;
                let until = self.now + self.random.between(500_000, 10_000_000);
                let handler = self.random.index(self.consumers[consumer].down_until.len());
                self.consumers[consumer].down_until[handler] = until;
                self.say(format_args!("what handler {handler} of {consumer} depends on is down"));
            }
            7 | 8 if self.left.requests > 0 => self.request(consumer),
            9 => {
                let store = &mut self.consumers[consumer].store;
                if let Some(request) = store.requests.iter_mut().rev().find(|it| super::super::store::is_open(it)) {
                    request.state = RequestState::Stopped;
                    self.at(10, consumer, What::Requests);
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn append(&mut self) {
        let more = self.random.between(1, 40) as usize;
        self.appended = (self.appended + more).min(self.scenario.log.events.len());
        for consumer in 0..self.consumers.len() {
            let delay = self.random.below(2_000);
            self.at(delay, consumer, What::HeadMoved);
        }
    }

    pub(super) fn resume(&mut self, consumer: usize) -> Check {
        if let Some(process) = &mut self.consumers[consumer].process
            && process.paused
        {
            process.engine.resume();
            process.paused = false;
            return self.turn(consumer);
        }
        Ok(())
    }

    fn request(&mut self, consumer: usize) {
        let letters: Vec<_> = self.consumers[consumer].store.letters.values().cloned().collect();
        if letters.is_empty() {
            return;
        }
        self.left.requests -= 1;
        let letter = &letters[self.random.index(letters.len())];
        let target = match self.random.below(3) {
            0 => Target::Event(letter.position),
            1 => Target::Aggregate(letter.aggregate.clone()),
            _ => Target::Consumer,
        };
        let action = if self.random.chance(650) { Action::Retry } else { Action::Discard };
        self.say(format_args!("request: {action:?} {target:?}"));
        self.consumers[consumer].store.make_request(StoredRequest {
            id: RequestId(0),
            consumer: ConsumerKey {
                bundle: String::new(),
                kind: evento_core::Kind::Projector,
                name: String::new(),
                version: 1,
                context: String::new(),
            },
            action,
            target,
            total: 0,
            done: 0,
            failed: 0,
            at: Position::BEGINNING,
            state: RequestState::Pending,
            made_at: wall(self.now),
        });
        let delay = self.random.below(5_000);
        self.at(delay, consumer, What::Requests);
    }
}
