//! A store that fails, stalls or loses answers when it is told to, and counts what it is asked.

mod delegate;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use evento_core::{
    BoxFuture, Position,
    store::{Head, OpenStore, Page, Store, StoreError},
};

/// What a store is asked to do.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[expect(missing_docs, reason = "each is named like the operation of the contract it stands for")]
pub enum Operation {
    Append,
    Read,
    ReadAt,
    ReadAggregate,
    Head,
    Claim,
    Renew,
    Release,
    Claims,
    Register,
    Load,
    Commit,
    Revision,
    Reset,
    Consumers,
    DeadEvents,
    DeadPositions,
    DeadDepth,
    MakeRequest,
    Request,
    OpenRequests,
    StopRequest,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It is made.
    Pass,
    /// It is not made, and answers that the store is unavailable.
    Fail,
    /// It is made, and its answer is lost: the caller hears that the store is unavailable.
    LoseAnswer,
    /// It is made after this long.
    Delay(Duration),
    /// It is made at once, and answered after this long.
    DelayAnswer(Duration),
    /// It is never made and never answered.
    Hang,
}

/// Decides the fate of calls and counts them; clones are one.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    planned: BTreeMap<Operation, VecDeque<Fate>>,
    always: BTreeMap<Operation, Fate>,
    counts: BTreeMap<Operation, usize>,
    altered: Option<Altered>,
    bound: Option<Position>,
}

/// What is made of a page on its way.
#[derive(Clone)]
struct Altered(Arc<dyn Fn(&mut Page) + Send + Sync>);

impl fmt::Debug for Altered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Altered")
    }
}

impl Faults {
    /// The next `calls` calls of `operation` meet this fate, after those planned before.
    pub fn next(&self, operation: Operation, calls: usize, fate: Fate) {
        self.state().planned.entry(operation).or_default().extend(std::iter::repeat_n(fate, calls));
    }

    /// Every call of `operation` that nothing else is planned for meets this fate.
    pub fn always(&self, operation: Operation, fate: Fate) {
        self.state().always.insert(operation, fate);
    }

    /// Alters every page of the log on its way to the reader.
    pub fn alter_pages(&self, alter: impl Fn(&mut Page) + Send + Sync + 'static) {
        self.state().altered = Some(Altered(Arc::new(alter)));
    }

    /// From now on, until this is told otherwise, an open transaction holds readers back: none gets above `bound`, though
    /// there are committed rows.
    pub fn hold_back(&self, bound: Option<Position>) {
        self.state().bound = bound;
    }

    fn altered(&self, mut page: Page) -> Page {
        let (altered, bound) = {
            let state = self.state();
            (state.altered.clone(), state.bound)
        };
        if let Some(bound) = bound {
            page.more_above |= page.head > bound;
            page.events.retain(|event| event.position() <= bound);
            page.scanned_to = page.scanned_to.min(bound);
            page.head = page.head.min(bound);
        }
        if let Some(Altered(alter)) = altered {
            alter(&mut page);
        }
        page
    }

    fn held_back(&self, head: Head) -> Head {
        let bound = self.state().bound;
        Head { bound: bound.map_or(head.bound, |bound| head.bound.min(bound)), ..head }
    }

    /// Forgets every plan.
    pub fn mend(&self) {
        let mut state = self.state();
        state.planned.clear();
        state.always.clear();
        state.altered = None;
        state.bound = None;
    }

    /// How often `operation` was called, whatever became of it.
    #[must_use]
    pub fn count(&self, operation: Operation) -> usize {
        self.state().counts.get(&operation).copied().unwrap_or_default()
    }

    /// How often each operation was called.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Operation, usize> {
        self.state().counts.clone()
    }

    /// Counts from nothing again.
    pub fn reset_counts(&self) {
        self.state().counts.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meet(&self, operation: Operation) -> Fate {
        let mut state = self.state();
        *state.counts.entry(operation).or_default() += 1;
        let planned = state.planned.get_mut(&operation).and_then(VecDeque::pop_front);
        planned.or_else(|| state.always.get(&operation).copied()).unwrap_or(Fate::Pass)
    }

    /// Makes a call as its fate has it.
    async fn call<T, E: From<StoreError>>(
        &self,
        operation: Operation,
        call: BoxFuture<'_, Result<T, E>>,
    ) -> Result<T, E> {
        match self.meet(operation) {
            Fate::Pass => call.await,
            Fate::Fail => Err(StoreError::unavailable("planned failure").into()),
            Fate::LoseAnswer => {
                drop(call.await);
                Err(StoreError::unavailable("planned loss of the answer").into())
            }
            Fate::Delay(delay) => {
                tokio::time::sleep(delay).await;
                call.await
            }
            Fate::DelayAnswer(delay) => {
                let answer = call.await;
                tokio::time::sleep(delay).await;
                answer
            }
            Fate::Hang => std::future::pending().await,
        }
    }
}

/// A store, or the description of one, with [`Faults`].
pub struct FaultyStore<S: ?Sized> {
    faults: Faults,
    inner: Arc<S>,
}

impl FaultyStore<dyn Store> {
    /// An open store that meets these faults.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, faults: Faults) -> Self {
        Self { faults, inner }
    }
}

impl<S: OpenStore> FaultyStore<S> {
    /// The description of a store that meets these faults once it is open.
    #[must_use]
    pub fn describing(inner: S, faults: Faults) -> Self {
        Self { faults, inner: Arc::new(inner) }
    }
}

impl<S: OpenStore> OpenStore for FaultyStore<S> {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn problems(&self) -> Vec<String> {
        self.inner.problems()
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        Box::pin(async move {
            let inner = self.inner.open().await?;
            Ok(Arc::new(FaultyStore::new(inner, self.faults.clone())) as Arc<dyn Store>)
        })
    }
}

impl<S: ?Sized + fmt::Debug> fmt::Debug for FaultyStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("inner", &self.inner).field("faults", &self.faults).finish()
    }
}
