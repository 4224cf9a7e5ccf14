use super::*;

/// The store at work.
impl World<'_> {
    pub(super) fn page(&self, consumer: usize, after: Position) -> Page {
        let component = &self.scenario.consumers[consumer];
        let log = &self.scenario.log;
        let mut page = Page { head: self.head(), ..Page::default() };
        let from = log.up_to(after).min(self.appended);
        for logged in &log.events[from..self.appended] {
            if component.routes[logged.name].is_none() && !component.unfiltered {
                continue;
            }
            if page.events.len() == self.scenario.page_size {
                break;
            }
            page.events.push(Arc::clone(&logged.event));
        }
        let last = page.events.last().map(|event| event.position());
        page.scanned_to = match last {
            Some(last) if page.events.len() == self.scenario.page_size => last,
            _ => page.head.max(after),
        };
        page
    }

    pub(super) fn find(&mut self, consumer: usize, read: Read) -> What {
        let log = &self.scenario.log;
        let routes = &self.scenario.consumers[consumer].routes;
        let store = &self.consumers[consumer].store;
        let event = |position: &Position| Some(Arc::clone(&log.events.get(log.index(*position))?.event));
        let mut found = Found::default();
        match &read {
            Read::At(positions) => {
                // A bound on bytes may leave only the first to be looked at.
                let most =
                    if self.random.chance(300) { self.random.below(positions.len() as u64) + 1 } else { u64::MAX };
                let looked_at = &positions[..positions.len().min(usize::try_from(most).unwrap_or(usize::MAX))];
                let events = looked_at.iter().filter_map(event).collect();
                found.selection = Selection { events, scanned_to: looked_at.last().copied().unwrap_or_default() };
            }
            Read::Letter(position) => {
                found.selection = Selection { events: event(position).into_iter().collect(), scanned_to: *position };
            }
            Read::Aggregate { aggregate, after, until, max, .. } => {
                let of: usize = aggregate.id().parse().unwrap_or_default();
                let between =
                    log.events[..log.up_to(*until).min(self.appended)].get(log.up_to(*after)..).unwrap_or_default();
                let matching = between.iter().filter(|it| it.aggregate == of && routes[it.name].is_some());
                let mut events: Vec<_> = matching.take(*max).map(|it| Arc::clone(&it.event)).collect();
                let mut scanned_to = match events.last() {
                    Some(last) if events.len() == *max => last.position(),
                    _ => *until,
                };
                // One on letters may leave no event at all.
                match self.random.below(6) {
                    0 if events.len() > 1 => scanned_to = events[0].position(),
                    1 => scanned_to = after.just_after().min(scanned_to),
                    _ => {}
                }
                events.retain(|event| event.position() <= scanned_to);
                let letters = store.letters_of(&Target::Aggregate(aggregate.clone()), *after, usize::MAX).0;
                let letters = letters.iter().filter(|letter| letter.position <= scanned_to);
                found.dead = letters.map(|it| DeadPosition { position: it.position, parks: it.parks }).collect();
                found.selection = Selection { events, scanned_to };
            }
            Read::Letters { target, after, .. } => {
                (found.letters, found.last) = store.letters_of(target, *after, self.scenario.letters_page);
            }
        }
        What::Found(read, found)
    }

    pub(super) fn write(
        &mut self,
        consumer: usize,
        commit: Box<Commit>,
        handled: Bits,
        late: bool,
        fails: bool,
    ) -> Check {
        if late {
            self.apply(consumer, *commit, &handled)?;
            return Ok(());
        }
        let answers_in = self.latency();
        if !fails {
            let applied = self.apply(consumer, *commit, &handled)?;
            self.at(answers_in, consumer, What::Written(applied));
            return Ok(());
        }
        match self.random.below(3) {
            0 => {}
            // Made, and the answer is lost.
            1 => {
                self.apply(consumer, *commit, &handled)?;
            }
            // Still on its way when the connection is given up.
            _ => {
                let delay = self.random.below(400_000);
                self.at(delay, consumer, What::Write { commit, handled, late: true });
            }
        }
        self.at(answers_in, consumer, What::Resolve);
        Ok(())
    }

    pub(super) fn apply(&mut self, consumer: usize, commit: Commit, handled: &Bits) -> Check<Applied> {
        let said = self.trace.is_some().then(|| shown(&commit));
        let dead: Vec<_> = commit.dead.iter().map(|letter| letter.position).collect();
        let Consumer { store, history, .. } = &mut self.consumers[consumer];
        let applied = store.apply(commit)?;
        if let Applied::Made(_) = applied {
            let checked = history.stored(&dead, handled, store);
            if let Some(said) = said {
                self.say(format_args!("{consumer}: stored {said}"));
            }
            checked?;
        }
        Ok(applied)
    }
}

/// A write, without what is empty.
fn shown(commit: &Commit) -> String {
    use std::fmt::Write;
    let mut said = format!("{} frontier {}", commit.replaces.next(), commit.frontier);
    let mut say = |name: &str, mut positions: Vec<String>| {
        // Held keys come in any order.
        positions.sort_unstable();
        if !positions.is_empty() {
            write!(said, ", {name} {}", positions.join(" ")).unwrap_or_default();
        }
    };
    say("opened", commit.opened.iter().map(ToString::to_string).collect());
    say("closed", commit.closed.iter().map(ToString::to_string).collect());
    say("held", commit.held.iter().map(|it| format!("{}:{}:{:?}", it.aggregate.id(), it.from, it.why)).collect());
    say("released", commit.released.iter().map(|it| it.id().to_owned()).collect());
    say("retries", commit.retries.iter().map(|it| it.position.to_string()).collect());
    say("retries ended", commit.retries_ended.iter().map(ToString::to_string).collect());
    say("started", commit.started.iter().map(|it| format!("{}:{}", it.position, it.crashes)).collect());
    say("started ended", commit.started_ended.iter().map(ToString::to_string).collect());
    say("dead", commit.dead.iter().map(|it| it.position.to_string()).collect());
    say("dead ended", commit.dead_ended.iter().map(ToString::to_string).collect());
    said
}
