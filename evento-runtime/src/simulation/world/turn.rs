use super::*;

/// The engine's turns.
impl World<'_> {
    pub(super) fn handle(&mut self, consumer: usize, what: What) -> Check {
        self.idle = if matches!(what, What::Wake) { self.idle + 1 } else { 0 };
        if self.idle > 10_000 {
            return Err("timers go off and nothing happens".to_owned());
        }
        let is_down = self.now < self.store_down_until;
        let fails = is_down || self.random.chance(self.scenario.store_fails);
        // As production does, a call that failed is not repeated at once.
        let answers_in = self.latency() + if fails { 50_000 } else { 0 };
        match what {
            What::ReadPage(after) => {
                let page = self.page(consumer, after);
                let what = if fails { What::PageFailed } else { What::Page(page) };
                self.at(answers_in, consumer, what);
                return Ok(());
            }
            What::Read(read) => {
                let what = if fails { What::ReadFailed(read) } else { self.find(consumer, read) };
                self.at(answers_in, consumer, what);
                return Ok(());
            }
            What::Write { commit, handled, late } => return self.write(consumer, commit, handled, late, fails),
            What::Resolve => {
                let what = if fails { What::Resolve } else { What::Resolved(self.consumers[consumer].store.revision) };
                self.at(answers_in, consumer, what);
                return Ok(());
            }
            What::Returns { run, returns } => return self.returns(run, returns),
            What::CutOff => return self.cut_off(),
            _ => {}
        }
        if let (What::Found(_, found), true) = (&what, self.trace.is_some()) {
            let events: Vec<_> = found.selection.events.iter().map(|event| event.position().minor()).collect();
            let dead = found.dead.iter().map(|it| it.position).chain(found.letters.iter().map(|it| it.position));
            let dead: Vec<_> = dead.map(|position| position.minor()).collect();
            let to = found.selection.scanned_to;
            self.say(format_args!("{consumer}: found {events:?}, letters {dead:?}, up to {to}"));
        }
        let now = self.time(consumer);
        let open = if matches!(what, What::Requests) { self.consumers[consumer].store.open_requests() } else { vec![] };
        let Some(process) = &mut self.consumers[consumer].process else { return Ok(()) };
        let engine = &mut process.engine;
        match what {
            What::Page(page) => engine.page(page),
            What::PageFailed => engine.fetch_failed(),
            What::Found(read, Found { selection, dead, letters, last }) => match read {
                Read::At(asked) => engine.recovered(&asked, selection, now),
                Read::Aggregate { .. } => engine.drained(&read, selection, &dead, now),
                Read::Letters { request, .. } => engine.letters(request, letters, last),
                Read::Letter(position) => engine.redriven(position, selection.events.into_iter().next(), now),
            },
            What::ReadFailed(read) => engine.read_failed(read),
            What::Written(Applied::Made(revision)) => engine.committed(revision, now),
            What::Written(Applied::Superseded { stored, replaced }) => {
                if stored != replaced.next() {
                    return Err(format!("a write that replaces {replaced} meets {stored}"));
                }
                engine.committed(stored, now);
            }
            What::Resolved(stored) => match engine.replaces() {
                Some(replaced) if stored == replaced.next() => engine.committed(stored, now),
                Some(replaced) if stored == replaced => engine.commit_failed(now),
                replaced => return Err(format!("the revision {stored} is stored, {replaced:?} is being replaced")),
            },
            What::Wake => process.wakes_at = None,
            What::HeadMoved => engine.head_moved(),
            What::Requests => engine.requests(&open),
            _ => {}
        }
        self.turn(consumer)
    }

    pub(super) fn time(&self, consumer: usize) -> Now {
        let began = self.consumers[consumer].process.as_ref().map_or(0, |process| process.began);
        Now { since_start: Duration::from_micros(self.now - began), wall: wall(self.now) }
    }

    /// One turn with an engine, as the consumer's task and the workers take it.
    pub(super) fn turn(&mut self, consumer: usize) -> Check {
        let now = self.time(consumer);
        let Some(process) = &mut self.consumers[consumer].process else { return Ok(()) };
        process.granted.store(false, Ordering::Relaxed);
        for Ended { slot, event, outcome, redelivery, last } in std::mem::take(&mut process.ended) {
            let random = self.random.next();
            self.consumers[consumer].history.report(event, &outcome, redelivery, random, self.now);
            let straight = matches!(outcome, Outcome::Handled) && self.random.chance(500);
            let Some(process) = &mut self.consumers[consumer].process else { return Ok(()) };
            if let Some(job) = straight.then(|| process.engine.straight_on(slot, now)).flatten() {
                return self.begin(consumer, Start { executor: None, job, more: Vec::new() });
            }
            process.engine.ended(slot, outcome, last, random, now);
        }
        let Some(process) = &mut self.consumers[consumer].process else { return Ok(()) };
        process.engine.admit(now);
        if let Some(out_of_order) = process.engine.out_of_order() {
            return Err(out_of_order.to_string());
        }
        for (index, grant) in process.grants.iter_mut().enumerate() {
            let (returned, wanted) = (process.engine.take_returned(index), process.engine.wants(index, now));
            if returned > grant.held() {
                return Err(format!("{returned} permits go back of {}", grant.held()));
            }
            process.engine.grant(index, grant.exchange(returned, wanted));
        }
        process.engine.dispatch(now, &mut process.out);
        for (index, grant) in process.grants.iter_mut().enumerate() {
            let unused = process.engine.take_returned(index);
            if unused > 0 {
                process.engine.grant(index, grant.exchange(unused, 0));
            }
            let counted = process.engine.executor_counts(index).in_flight;
            if grant.held() != counted {
                return Err(format!("{} permits are held and {counted} count as in flight", grant.held()));
            }
        }
        self.carry_out(consumer)?;
        // Others have been given permits that this one gave back.
        for other in 0..self.consumers.len() {
            let process = self.consumers[other].process.as_ref();
            if other != consumer && process.is_some_and(|process| process.granted.load(Ordering::Relaxed)) {
                self.turn(other)?;
            }
        }
        Ok(())
    }

    pub(super) fn carry_out(&mut self, consumer: usize) -> Check {
        let now = self.time(consumer);
        let Some(process) = &mut self.consumers[consumer].process else { return Ok(()) };
        let out = &mut process.out;
        let (commit, fetch, inline) = (out.commit.take(), out.fetch.take(), out.inline.take());
        let (reads, starts) = (std::mem::take(&mut out.reads), std::mem::take(&mut out.starts));
        let (wake_at, stopped) = (out.wake_at, process.engine.is_stopped());
        if let Some(wake_at) = wake_at
            && !stopped
        {
            if wake_at <= now.since_start {
                return Err(format!("consumer {consumer} spins: it wants to wake up at once, and has just been up"));
            }
            let at = process.began + wake_at.as_micros() as u64;
            if process.wakes_at.is_none_or(|set| at < set || set <= self.now) {
                process.wakes_at = Some(at);
                // Rounded up: before its time nothing is due.
                self.at(at + 1 - self.now, consumer, What::Wake);
            }
        }
        if let Some(commit) = commit {
            let Consumer { history, store, process: Some(process), .. } = &mut self.consumers[consumer] else {
                return Ok(());
            };
            let handled = match &process.writing {
                Some((replaces, handled)) if *replaces == commit.replaces => handled.clone(),
                _ => history.made(&commit, store)?,
            };
            process.writing = Some((commit.replaces, handled.clone()));
            let delay = self.latency();
            self.at(delay, consumer, What::Write { commit: Box::new(commit), handled, late: false });
        }
        if let Some(after) = fetch {
            self.ask(consumer, What::ReadPage(after));
        }
        for read in reads {
            self.say(format_args!("{consumer}: {read:?}"));
            self.ask(consumer, What::Read(read));
        }
        for start in inline.into_iter().chain(starts) {
            self.begin(consumer, start)?;
        }
        if self.steps.is_multiple_of(16)
            && let Consumer { process: Some(process), history, .. } = &self.consumers[consumer]
        {
            history.settled_to(process.engine.settled_to())?;
        }
        Ok(())
    }

    pub(super) fn latency(&mut self) -> u64 {
        self.random.below(self.scenario.latency) + 1
    }

    /// Has something read, now or when the answer is there.
    pub(super) fn ask(&mut self, consumer: usize, what: What) {
        let delay = if self.random.chance(500) { 0 } else { self.latency() };
        self.at(delay, consumer, what);
    }
}
