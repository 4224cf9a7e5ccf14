use std::collections::{BTreeSet, VecDeque};

use evento_core::{
    Position, RecordedEvent,
    store::{Action, DeadEvent, RequestId, RequestProgress, RequestState, StoredRequest},
};

use super::{Engine, Output, Read, lane::Aside, slot::Origin};

/// Stored requests, carried out one after the other.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    queue: VecDeque<StoredRequest>,
    run: Option<Run>,
    /// Carried out, though the store may not say so yet.
    ended: BTreeSet<RequestId>,
}

/// The request under way. Its letters are dealt with one at a time, by position.
#[derive(Debug)]
struct Run {
    request: StoredRequest,
    letters: VecDeque<DeadEvent>,
    reading: bool,
    /// No letters follow.
    last: bool,
    read_to: Position,
    /// The letter that is being handled again.
    letter: Option<Position>,
    /// It parks nothing, and so is read by itself.
    alone: Option<Alone>,
    /// Letters that went while this request was under way, though not by it: what is being read may still tell of them.
    gone: BTreeSet<Position>,
}

/// A letter that parks nothing, on its way to be handled again.
#[derive(Debug)]
struct Alone {
    letter: DeadEvent,
    /// Its event has been asked for.
    read: bool,
}

impl Requests {
    /// The letter that parks nothing and whose event was read.
    pub(crate) fn alone(&mut self, position: Position) -> Option<DeadEvent> {
        let alone = self.run.as_mut()?.alone.take_if(|alone| alone.letter.position == position)?;
        Some(alone.letter)
    }

    /// Whether the letter is being handled again on a request that has not been stopped.
    pub(crate) fn redrives(&self, position: Position) -> bool {
        self.run.as_ref().is_some_and(|run| run.letter == Some(position))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.run.is_none() && self.queue.is_empty()
    }

    /// Whether a letter of the event's aggregate, one that parks nothing, is on its way to be handled again.
    pub(crate) fn reads_of(&self, event: &RecordedEvent) -> bool {
        let alone = self.run.as_ref().and_then(|run| run.alone.as_ref());
        alone.is_some_and(|alone| alone.letter.aggregate.as_ref() == event.aggregate())
    }

    pub(crate) fn redrive_failed(&mut self, position: Position) {
        if let Some(alone) = self.run.as_mut().and_then(|run| run.alone.as_mut())
            && alone.letter.position == position
        {
            alone.read = false;
        }
    }

    /// Takes up what is open. Answers the letter to give up where the request under way has been stopped.
    pub(crate) fn update(&mut self, open: &[StoredRequest]) -> Option<Position> {
        self.queue.retain(|queued| open.iter().any(|request| request.id == queued.id));
        for request in open.iter().filter(|request| request.state != RequestState::Stopped) {
            let known = self.ended.contains(&request.id)
                || self.run.as_ref().is_some_and(|run| run.request.id == request.id)
                || self.queue.iter().any(|queued| queued.id == request.id);
            if !known {
                self.queue.push_back(request.clone());
            }
        }
        self.ended.retain(|id| open.iter().any(|request| request.id == *id));
        let stopped = self.run.take_if(|run| open.iter().all(|request| request.id != run.request.id))?;
        stopped.letter
    }

    pub(crate) fn letters(&mut self, id: RequestId, letters: Vec<DeadEvent>, last: bool) {
        if let Some(run) = self.run.as_mut().filter(|run| run.request.id == id) {
            run.reading = false;
            run.last = last;
            run.read_to = letters.last().map_or(run.read_to, |letter| letter.position);
            run.letters.extend(letters.into_iter().filter(|letter| !run.gone.contains(&letter.position)));
        }
    }

    pub(crate) fn read_failed(&mut self, id: RequestId) {
        if let Some(run) = self.run.as_mut().filter(|run| run.request.id == id) {
            run.reading = false;
        }
    }

    pub(crate) fn ask(&mut self, out: &mut Output) {
        let Some(run) = &mut self.run else { return };
        if let Some(alone) = run.alone.as_mut().filter(|alone| !alone.read) {
            alone.read = true;
            out.reads.push(Read::Letter(alone.letter.position));
        }
        if run.letters.is_empty() && run.letter.is_none() && !run.reading && !run.last {
            run.reading = true;
            out.reads.push(Read::Letters {
                request: run.request.id,
                target: run.request.target.clone(),
                after: run.read_to,
            });
        }
    }
}

impl Run {
    fn new(request: StoredRequest) -> Self {
        Self {
            letters: VecDeque::new(),
            reading: false,
            last: false,
            read_to: request.at,
            letter: None,
            alone: None,
            gone: BTreeSet::new(),
            request,
        }
    }

    fn progress(&self, finished: bool) -> RequestProgress {
        let StoredRequest { id, done, failed, at, .. } = self.request;
        RequestProgress { id, done, failed, at, finished }
    }
}

impl Engine {
    /// Goes on with the request under way, or with the next.
    pub(super) fn advance_requests(&mut self) {
        if self.paused || self.stopping {
            return;
        }
        loop {
            let Some(run) = &mut self.requests.run else {
                // It would read letters that the one before it has dealt with.
                if self.pending.ends_letters() {
                    return;
                }
                let Some(next) = self.requests.queue.pop_front() else { return };
                self.requests.run = Some(Run::new(next));
                continue;
            };
            if run.letter.is_some() {
                return;
            }
            let Some(letter) = run.letters.front() else {
                if run.last && !run.reading {
                    self.pending.progress(run.progress(true));
                    self.requests.ended.insert(run.request.id);
                    self.requests.run = None;
                    continue;
                }
                return;
            };
            // What is under way with its aggregate comes first.
            let of_letter = |id| self.slots.get(id).is_some_and(|it| it.event.aggregate() == letter.aggregate.as_ref());
            if self.lanes.contains(&letter.aggregate) || self.barrier.is_some_and(of_letter) {
                return;
            }
            // So does an attempt at the letter that a request which was stopped has left.
            let position = letter.position;
            if self.slots.iter().any(|slot| slot.origin == Origin::Redriven && slot.position() == position) {
                return;
            }
            let Some(letter) = run.letters.pop_front() else { return };
            match run.request.action {
                Action::Discard => self.discard(letter),
                Action::Retry if letter.parks => {
                    run.letter = Some(letter.position);
                    self.redrive(letter);
                }
                Action::Retry => {
                    run.letter = Some(letter.position);
                    run.alone = Some(Alone { letter, read: false });
                }
            }
        }
    }

    fn discard(&mut self, letter: DeadEvent) {
        if letter.parks && self.keys.get(&letter.aggregate).is_some_and(|held| held.from == letter.position) {
            let held = self.keys.wait(letter.aggregate.clone(), letter.position.just_after());
            self.pending.hold(held);
            self.set_aside(Aside { released: true, ..Aside::new(letter.aggregate, letter.position) });
        }
        self.letter_ended(letter.position, false);
    }

    /// The letter goes: its event was handled after all, or is dropped.
    pub(super) fn letter_ended(&mut self, position: Position, handled: bool) {
        self.pending.dead_ended(position);
        let Some(run) = &mut self.requests.run else { return };
        if handled && run.letter != Some(position) {
            // A request that was stopped had begun with it, and this one has read the letter meanwhile.
            run.letters.retain(|letter| letter.position != position);
            run.gone.insert(position);
            return;
        }
        run.letter = None;
        run.request.done = run.request.done.saturating_add(1);
        run.request.at = position;
        self.pending.progress(run.progress(false));
    }

    /// The letter stays: its event has failed again.
    pub(super) fn letter_failed(&mut self, position: Position) {
        let Some(run) = self.requests.run.as_mut().filter(|run| run.letter == Some(position)) else { return };
        run.letter = None;
        run.request.failed = run.request.failed.saturating_add(1);
        run.request.at = position;
        self.pending.progress(run.progress(false));
    }
}
