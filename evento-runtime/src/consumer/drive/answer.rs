use std::{sync::Arc, time::Duration};

use evento_core::store::CommitError;

use super::{Done, Drive, End, io, now};
use crate::engine::Read;

/// What becomes of the store's answers.
impl Drive<'_> {
    pub(super) fn done(&mut self, done: Done) -> Option<End> {
        let core = Arc::clone(&self.core);
        let mut inner = core.lock();
        inner.now = now(self.io.shared.clock);
        let now = inner.now;
        self.watchdog.answered();
        let engine = &mut inner.engine;
        match done {
            Done::Page(Ok(page)) => {
                self.calm();
                let held_back = page.more_above && page.scanned_to >= page.head;
                self.look_again_after = match held_back {
                    true => (self.look_again_after * 2).clamp(Duration::from_millis(2), Duration::from_millis(100)),
                    false => Duration::ZERO,
                };
                self.look_again = held_back.then(|| now.since_start + self.look_again_after);
                engine.page(page);
            }
            Done::Page(Err(error)) => {
                self.troubled("reading the log", error);
                engine.fetch_failed();
            }
            Done::Read(read, Ok(found)) => {
                self.calm();
                match read {
                    Read::At(asked) => engine.recovered(&asked, found.selection, now),
                    Read::Aggregate { .. } => engine.drained(&read, found.selection, &found.dead, now),
                    Read::Letters { request, .. } => engine.letters(request, found.letters, found.last),
                    Read::Letter(position) => engine.redriven(position, found.selection.events.into_iter().next(), now),
                }
            }
            Done::Read(read, Err(error)) => {
                self.troubled("reading again", error);
                engine.read_failed(read);
            }
            Done::Commit(Ok(revision)) => {
                self.calm();
                engine.committed(revision, now);
            }
            Done::Commit(Err(CommitError::Store(error))) => {
                self.troubled("writing the checkpoint", error);
                self.under_way.push(Box::pin(self.io.clone().resolve(io::backoff(self.failures))));
            }
            Done::Resolved(Ok(stored)) => match engine.replaces() {
                Some(replaced) if stored == replaced.next() => {
                    self.calm();
                    engine.committed(stored, now);
                }
                Some(replaced) if stored == replaced => engine.commit_failed(now),
                _ => {
                    return Some(End::Again(anyhow::anyhow!(
                        "the stored checkpoint is at an unknown revision {stored}"
                    )));
                }
            },
            Done::Resolved(Err(CommitError::Store(error))) => {
                self.troubled("reading the checkpoint back", error);
                self.under_way.push(Box::pin(self.io.clone().resolve(io::backoff(self.failures))));
            }
            // A write that was sent again after it had been made: nobody else writes under this epoch.
            Done::Commit(Err(CommitError::Superseded { stored, replaced })) if stored == replaced.next() => {
                engine.committed(stored, now);
            }
            Done::Commit(Err(CommitError::Fenced)) | Done::Resolved(Err(CommitError::Fenced)) => {
                return Some(End::Lost);
            }
            Done::Commit(Err(error)) | Done::Resolved(Err(error)) => {
                return Some(End::Again(anyhow::Error::new(error)));
            }
        }
        None
    }

    fn troubled(&mut self, doing: &str, error: impl Into<anyhow::Error>) {
        let trouble = format!("{doing}: {:#}", error.into());
        if self.trouble.is_none() {
            tracing::warn!(consumer = %self.consumer.spec.key, "{trouble}; trying again");
        }
        self.trouble = Some(trouble);
        self.failures += 1;
    }

    fn calm(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!(consumer = %self.consumer.spec.key, "the store answers again");
        }
        self.failures = 0;
    }
}
