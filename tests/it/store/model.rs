//! Random operations on SQLite, with the memory store as the model: whatever is done, both answer alike.

use std::{fmt::Debug, sync::Arc};

use evento_core::{
    NewEvent, Position, Sequence,
    store::{
        Append, Claim, ClaimOutcome, Commit, DeadFilter, Expected, OpenStore, Reset, Revision, Started, Store, WhyHeld,
    },
};
use evento_runtime::store::{MemoryStore, SqliteStore};
use evento_tests::conformance::{
    LONG, checkpoint::retry, commit, dead_event::letter, event, filter, ids, order, orders, page, positions,
    read_after, registration, request_by,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Append {
        expected: Option<u64>,
        events: Vec<(u8, u8, bool)>,
    },
    Claim {
        by: u8,
    },
    Release {
        clean: bool,
    },
    /// Under the present claim, or the one before.
    Commit {
        stale: bool,
        behind: u64,
        change: Change,
    },
    Reset {
        to: u64,
    },
}

#[derive(Clone, Debug)]
struct Change {
    /// By how much the frontier rises, or (less 3) falls.
    rise: u64,
    opened: Vec<u64>,
    closed: Vec<u64>,
    held: Option<(u8, u64)>,
    released: Option<u8>,
    retried: Vec<u64>,
    ended: Vec<u64>,
    dead: Vec<u64>,
    undead: Vec<u64>,
}

fn some() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(1..14_u64, 0..3)
}

fn change() -> impl Strategy<Value = Change> {
    let rows = (some(), some(), prop::option::of((0..3_u8, 1..12_u64)), prop::option::of(0..3_u8));
    (0..9_u64, rows, some(), some(), some(), some()).prop_map(
        |(rise, (opened, closed, held, released), retried, ended, dead, undead)| Change {
            rise,
            opened,
            closed,
            held,
            released,
            retried,
            ended,
            dead,
            undead,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let events = prop::collection::vec((0..12_u8, 0..3_u8, prop::bool::weighted(0.1)), 0..4);
    prop_oneof![
        3 => (prop::option::weighted(0.3, 0..4_u64), events).prop_map(|(expected, events)| Step::Append { expected, events }),
        1 => (0..2_u8).prop_map(|by| Step::Claim { by }),
        1 => any::<bool>().prop_map(|clean| Step::Release { clean }),
        6 => (prop::bool::weighted(0.1), prop_oneof![9 => Just(0), 1 => Just(1_u64)], change())
            .prop_map(|(stale, behind, change)| Step::Commit { stale, behind, change }),
        1 => (0..12_u64).prop_map(|to| Step::Reset { to }),
    ]
}

/// One of the two stores, with what a process that uses it would know.
struct Side {
    store: Arc<dyn Store>,
    claims: Vec<Claim>,
    revision: u64,
    frontier: u64,
}

impl Side {
    async fn new(store: Arc<dyn Store>) -> Self {
        store.register(vec![registration(&["placed"])]).await.expect("registers");
        Self { store, claims: Vec::new(), revision: 0, frontier: 0 }
    }

    /// Does one step, and answers what can be seen of it, times apart.
    async fn take(&mut self, step: &Step) -> String {
        match step {
            Step::Append { expected, events } => {
                // An id goes with one order, so that most repeats are repeats.
                let events = events.iter().map(|(id, by, altered)| {
                    let order_id = if *altered { *by } else { id % 3 };
                    let event = event(&id.to_string(), &order_id.to_string(), "placed");
                    if *altered { NewEvent { payload: vec![*by], ..event } } else { event }
                });
                let expected = expected.map_or(Expected::Any, |at| Expected::At(Sequence(at)));
                shown(self.store.append(Append { expected, events: events.collect() }).await)
            }
            Step::Claim { by } => match self.store.claim(request_by(&by.to_string(), LONG)).await.expect("answers") {
                ClaimOutcome::Taken { claim, clean } => {
                    let state = self.store.load(claim.clone()).await.expect("loads");
                    (self.revision, self.frontier) = (state.revision.0, state.frontier.minor());
                    let shown = format!("{claim:?} {clean} {state:?}");
                    self.claims.push(claim);
                    shown
                }
                ClaimOutcome::Held { owner, .. } => format!("held by {owner}"),
                ClaimOutcome::StandBack { .. } => unreachable!("all have the same names"),
            },
            Step::Release { clean } => match self.claims.last() {
                Some(claim) => shown(self.store.release(claim.clone(), *clean).await),
                None => String::new(),
            },
            Step::Commit { stale, behind, change } => {
                let Some(claim) = self.claims.iter().rev().nth(usize::from(*stale)).cloned() else {
                    return String::new();
                };
                let write = self.write(change, *behind);
                let frontier = write.frontier.minor();
                let outcome = self.store.commit(claim, write).await;
                if let Ok(Revision(revision)) = outcome {
                    (self.revision, self.frontier) = (revision, frontier);
                }
                shown(outcome)
            }
            Step::Reset { to } => {
                let Some(claim) = self.claims.last().cloned() else { return String::new() };
                let outcome = self.store.reset(Reset { claim, to: Position::new(*to), time_to_live: LONG }).await;
                if let Ok(claim) = &outcome {
                    (self.revision, self.frontier) = (self.revision + 1, *to);
                    self.claims.push(claim.clone());
                }
                shown(outcome)
            }
        }
    }

    fn write(&self, change: &Change, behind: u64) -> Commit {
        let frontier = (self.frontier + change.rise).saturating_sub(if change.rise == 0 { 3 } else { 0 });
        let hash = order("0").key_hash();
        let held = change.held.map(|(id, from)| evento_core::store::HeldKey {
            aggregate: order(&id.to_string()),
            from: Position::new(from),
            why: WhyHeld::Dead,
        });
        let starts = |at: &u64| Started { position: Position::new(*at), key_hash: hash, crashes: 1 };
        Commit {
            opened: positions(&change.opened),
            closed: positions(&change.closed),
            held: held.into_iter().collect(),
            released: change.released.map(|id| order(&id.to_string())).into_iter().collect(),
            retries: change.retried.iter().map(|at| retry(*at, "0")).collect(),
            retries_ended: positions(&change.ended),
            started: change.retried.iter().map(starts).collect(),
            started_ended: positions(&change.ended),
            dead: change.dead.iter().map(|at| letter(*at, "0")).collect(),
            dead_ended: positions(&change.undead),
            ..commit(self.revision.saturating_sub(behind), frontier)
        }
    }

    /// Everything that can be read.
    async fn all(&self) -> String {
        let events = page(&*self.store, read_after(Position::BEGINNING, &filter(&["placed"]))).await;
        let letters = self.store.dead_events(orders(), DeadFilter { limit: 100, ..DeadFilter::default() }).await;
        let state = match self.claims.last() {
            Some(claim) => shown(self.store.load(claim.clone()).await),
            None => String::new(),
        };
        let sequences: Vec<_> = events.events.iter().map(|event| event.sequence().0).collect();
        let log = (ids(&events.events), sequences, events.scanned_to, events.head);
        format!("{log:?} {:?} {state}", letters.expect("lists").letters)
    }
}

fn shown<T: Debug>(outcome: Result<T, impl Debug>) -> String {
    format!("{outcome:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_answers_as_memory_does(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("builds");
        runtime.block_on(async {
            let folder = tempfile::tempdir().expect("a folder");
            let file = SqliteStore::at(folder.path().join("shop.db"));
            let mut sqlite = Side::new(file.open().await.expect("opens")).await;
            let mut memory = Side::new(MemoryStore::new().open().await.expect("opens")).await;
            for (number, step) in [Step::Claim { by: 0 }].iter().chain(&steps).enumerate() {
                let (found, expected) = (sqlite.take(step).await, memory.take(step).await);
                prop_assert_eq!(found, expected, "step {}: {:?}", number, step);
                let (found, expected) = (sqlite.all().await, memory.all().await);
                prop_assert_eq!(found, expected, "after step {}: {:?}", number, step);
            }
            sqlite.store.close().await;
            Ok(())
        })?;
    }
}
