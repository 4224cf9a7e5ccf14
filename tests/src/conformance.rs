//! The conformance suite: what every store and every decorator of one must do.
//!
//! Each rule is a function of a [`Fixture`]; [`conformance!`](crate::conformance!) makes each a test of its own.

pub mod checkpoint;
pub mod claim;
pub mod dead_event;
pub mod log;
pub mod request;

use std::{any::Any, fmt, sync::Arc, time::Duration};

use evento_core::{
    Aggregate, ConsumerKey, DEFAULT_CONTEXT, EventId, Kind, Metadata, NewEvent, Position, RecordedEvent, Segment,
    StartAt,
    store::{
        Append, Appended, Claim, ClaimOutcome, ClaimRequest, Commit, ConsumerState, Expected, Filter, OpenStore, Owner,
        Page, ReadLog, Registration, Revision, Store,
    },
};

/// How long a claim lasts in rules that let one run out. Stores that tests cannot pause really wait for it.
pub const SHORT: Duration = Duration::from_millis(60);
/// How long a claim lasts in all other rules.
pub const LONG: Duration = Duration::from_secs(600);

/// A store to test: empty at first, and the same each time it is opened.
pub struct Fixture {
    store: Arc<dyn OpenStore>,
    _keep: Box<dyn Any + Send + Sync>,
}

impl Fixture {
    /// The store, and whatever must live as long as it does: a folder, say.
    pub fn new(store: impl OpenStore, keep: impl Any + Send + Sync) -> Self {
        Self { store: Arc::new(store), _keep: Box::new(keep) }
    }

    /// Opens the store.
    pub async fn open(&self) -> Arc<dyn Store> {
        self.store.open().await.expect("the store opens")
    }

    /// Opens the store with `orders` registered from the beginning.
    pub async fn open_registered(&self) -> Arc<dyn Store> {
        let store = self.open().await;
        store.register(vec![registration(&["placed"])]).await.expect("registers");
        store
    }
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fixture").field(&self.store).finish()
    }
}

/// The consumer of most rules.
#[must_use]
pub fn orders() -> ConsumerKey {
    consumer("orders")
}

/// A projector of the bundle `shop`.
#[must_use]
pub fn consumer(name: &str) -> ConsumerKey {
    ConsumerKey {
        bundle: "shop".to_owned(),
        kind: Kind::Projector,
        name: name.to_owned(),
        version: 1,
        context: DEFAULT_CONTEXT.to_owned(),
    }
}

/// `orders`, from the beginning, with these names.
#[must_use]
pub fn registration(names: &[&str]) -> Registration {
    Registration { consumer: orders(), start: StartAt::Beginning, names: texts(names) }
}

/// Owned texts.
#[must_use]
pub fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// An owner of no process that any host could look for.
#[must_use]
pub fn owner(name: &str) -> Owner {
    Owner { name: name.to_owned(), process: None }
}

/// A request for the claim of `orders`.
#[must_use]
pub fn request_by(name: &str, time_to_live: Duration) -> ClaimRequest {
    ClaimRequest {
        consumer: orders(),
        segment: Segment::WHOLE,
        owner: owner(name),
        time_to_live,
        names: texts(&["placed"]),
    }
}

/// Takes the claim of `orders`, and whether the taking was clean.
///
/// # Panics
/// Where it is not given.
pub async fn take_for(store: &dyn Store, name: &str, time_to_live: Duration) -> (Claim, bool) {
    match store.claim(request_by(name, time_to_live)).await.expect("answers") {
        ClaimOutcome::Taken { claim, clean } => (claim, clean),
        other => unreachable!("{name} was to take the claim, but: {other:?}"),
    }
}

/// Takes the claim of `orders` for long.
pub async fn take(store: &dyn Store, name: &str) -> Claim {
    take_for(store, name, LONG).await.0
}

/// Everything stored under a claim.
pub async fn load(store: &dyn Store, claim: &Claim) -> ConsumerState {
    store.load(claim.clone()).await.expect("loads")
}

/// A commit that moves the frontier, to be added to.
#[must_use]
pub fn commit(replaces: u64, frontier: u64) -> Commit {
    Commit { replaces: Revision(replaces), frontier: Position::new(frontier), ..Commit::default() }
}

/// Positions of one part.
#[must_use]
pub fn positions(numbers: &[u64]) -> Vec<Position> {
    numbers.iter().copied().map(Position::new).collect()
}

/// An order.
#[must_use]
pub fn order(id: &str) -> Aggregate {
    Aggregate::new("order", id)
}

/// An event of an order.
///
/// # Panics
/// Where the id is empty.
#[must_use]
pub fn event(id: &str, order_id: &str, name: &'static str) -> NewEvent {
    NewEvent {
        id: Some(EventId::new(id).expect("a valid id")),
        aggregate: order(order_id),
        name: name.into(),
        context: DEFAULT_CONTEXT.into(),
        payload: format!("{{\"id\":\"{id}\"}}").into_bytes(),
        metadata: Metadata::default(),
    }
}

/// An append of these events that expects nothing.
#[must_use]
pub fn any(events: Vec<NewEvent>) -> Append {
    Append { expected: Expected::Any, events }
}

/// Appends `count` events `placed`, of orders `0..spread`, with ids `{prefix}1..`.
pub async fn fill(store: &dyn Store, prefix: &str, count: usize, spread: usize) -> Appended {
    let events = (1..=count).map(|n| event(&format!("{prefix}{n}"), &(n % spread).to_string(), "placed")).collect();
    store.append(any(events)).await.expect("appends")
}

/// What takes these names in the default context.
#[must_use]
pub fn filter(names: &[&str]) -> Arc<Filter> {
    Arc::new(Filter { names: texts(names), context: DEFAULT_CONTEXT.to_owned(), segment: Segment::WHOLE })
}

/// A read after `after`, with limits too large to matter.
#[must_use]
pub fn read_after(after: Position, filter: &Arc<Filter>) -> ReadLog {
    ReadLog {
        after,
        filter: Arc::clone(filter),
        max_events: 10_000,
        max_bytes: 1 << 24,
        max_scanned: 1 << 20,
        max_payload: 1 << 20,
    }
}

/// One page.
pub async fn page(store: &dyn Store, read: ReadLog) -> Page {
    store.read(read).await.expect("reads")
}

/// The ids of events.
#[must_use]
pub fn ids(events: &[Arc<RecordedEvent>]) -> Vec<&str> {
    events.iter().map(|event| event.id()).collect()
}

/// Makes every rule a test of the store that `$fixture` makes anew each time, under the attribute `$test`.
#[macro_export]
macro_rules! conformance {
    ($fixture:expr, $test:meta) => {
        $crate::conformance! { @ $fixture, $test,
            log:
                appended_events_are_read_back_whole,
                events_of_an_aggregate_are_numbered_without_holes,
                an_append_whose_ids_are_all_known_appends_nothing,
                a_repeat_is_recognised_whatever_it_expected,
                a_partly_known_append_is_refused_whole,
                an_altered_repeat_is_refused,
                an_id_twice_in_one_append_is_refused,
                an_expected_sequence_must_be_the_last,
                an_expected_sequence_goes_with_one_aggregate,
                an_invalid_event_is_refused_by_its_place,
                an_append_of_nothing_does_nothing,
                b22_an_empty_page_is_not_the_end,
                b47_r18_what_does_not_match_is_progress,
                a_page_takes_names_context_and_segment,
                a_page_ends_at_its_limit_and_the_next_goes_on,
                one_event_is_handed_over_whatever_its_size,
                b92_an_oversize_payload_stays_in_the_log,
                nobody_reads_beyond_the_last_position,
                events_are_found_at_their_positions,
                a_read_by_position_that_is_cut_short_says_what_it_has_not_looked_at,
                one_aggregate_is_read_through_its_index,
                one_aggregate_is_read_in_parts_of_bounded_size,
                r75_an_append_wakes_readers_after_it_has_committed,
                r10_concurrent_appends_lose_and_double_nothing,
                what_was_appended_is_there_after_reopening,
                a_closed_store_is_unavailable;
            claim:
                e2_one_holder_at_a_time,
                every_taking_raises_the_epoch,
                a_claim_that_ran_out_is_taken_over_uncleanly,
                b48_renewal_is_by_owner_and_epoch,
                b49_a_renewed_claim_does_not_run_out,
                a_claim_past_its_time_is_held_until_somebody_takes_it,
                b51_a_holder_that_asks_again_ends_its_own_epoch,
                asking_again_after_an_unclean_taking_is_still_unclean,
                a_claim_let_go_uncleanly_is_taken_uncleanly,
                releasing_anothers_claim_does_nothing,
                b53_who_lacks_a_stored_name_stands_back_for_one_that_has_it,
                nobody_stands_back_for_one_that_stopped_asking,
                b129_claims_are_listed,
                an_unknown_consumer_cannot_be_claimed;
            checkpoint:
                the_start_is_stored_at_first_sight_only,
                a_new_consumer_has_nothing_behind_it,
                e11_r35_a_frontier_never_falls,
                e11_a_stale_epoch_never_writes,
                a_write_names_the_revision_it_replaces,
                b42_b52_an_unknown_outcome_is_resolved_by_reading_the_revision,
                b46_a_new_claim_reads_what_the_last_one_wrote,
                a_commit_writes_all_its_rows,
                what_goes_in_a_commit_goes_before_what_comes,
                b45_closing_a_position_closes_no_other,
                b74_a_skip_is_a_completion,
                a_refused_commit_writes_nothing,
                a_position_above_the_frontier_cannot_be_open,
                positions_of_two_parts_are_kept,
                a_reset_opens_a_generation_and_an_epoch,
                b109_what_was_open_is_no_replay,
                b109_a_second_reset_keeps_what_the_first_replay_had_not_reached,
                what_waited_behind_a_held_key_is_no_replay,
                b45_a_reset_leaves_what_is_open_below_it,
                a_reset_archives_what_is_above_it_and_nothing_else,
                a_reset_beyond_the_frontier_is_refused,
                consumers_are_listed_with_what_is_open,
                state_survives_reopening;
            dead_event:
                b87_one_letter_a_position,
                letters_are_read_with_the_checkpoint,
                letters_are_listed_page_by_page,
                letters_are_filtered_by_every_part,
                positions_of_letters_are_read_without_what_is_in_them,
                e3_a_letter_goes_when_the_commit_says_so,
                consumers_do_not_see_each_others_letters;
            request:
                a_request_counts_the_letters_of_its_target,
                progress_is_part_of_the_commit,
                a_stopped_request_is_no_longer_open,
                a_finished_request_cannot_be_stopped,
                a_request_to_an_unknown_consumer_is_refused;
        }
    };
    (@ $fixture:expr, $test:meta, $($part:ident: $($rule:ident),+;)+) => {
        $(mod $part {
            use super::*;

            $(#[$test]
            async fn $rule() {
                $crate::conformance::$part::$rule($fixture).await;
            })+
        })+
    };
}
