//! Rules of claims.

use evento_core::{
    Position, Segment,
    store::{ClaimOutcome, ClaimRequest, CommitError, Epoch, Reset, StoreError},
};
use tokio::time::sleep;

use super::{Fixture, LONG, SHORT, commit, consumer, load, orders, owner, request_by, take, take_for, texts};

/// Who asks for a claim that is held is told by whom and until when.
pub async fn e2_one_holder_at_a_time(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let (_, clean) = take_for(&*store, "a", LONG).await;
    assert!(clean, "nobody held it before");
    match store.claim(request_by("b", LONG)).await.expect("answers") {
        ClaimOutcome::Held { owner: held_by, until } => {
            assert_eq!(held_by, owner("a"));
            assert!(until.0 > 1_500_000_000_000_000, "microseconds of this century");
        }
        other => unreachable!("a holds it, but: {other:?}"),
    }
}

/// Epochs only rise, across releases too.
pub async fn every_taking_raises_the_epoch(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let mut last = Epoch(0);
    for name in ["a", "b", "a"] {
        let (claim, clean) = take_for(&*store, name, LONG).await;
        assert!(claim.epoch > last && clean);
        last = claim.epoch;
        store.release(claim, true).await.expect("releases");
    }
}

/// A claim whose time has run out is free, and its holder may have died.
pub async fn a_claim_that_ran_out_is_taken_over_uncleanly(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let (first, _) = take_for(&*store, "a", SHORT).await;
    sleep(SHORT * 2).await;
    let (second, clean) = take_for(&*store, "b", LONG).await;
    assert!(second.epoch > first.epoch);
    assert!(!clean);
    store.release(second, true).await.expect("releases");
    assert!(take_for(&*store, "c", LONG).await.1, "b let it go by itself");
}

/// A renewal names owner and epoch; what is no longer held is answered, the rest prolonged.
pub async fn b48_renewal_is_by_owner_and_epoch(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let foreign = evento_core::store::Claim { owner: owner("b"), ..claim.clone() };
    let stale = evento_core::store::Claim { epoch: Epoch(claim.epoch.0 - 1), ..claim.clone() };
    let unknown = evento_core::store::Claim { consumer: consumer("nobody"), ..claim.clone() };
    let lost = store.renew(vec![foreign.clone(), claim.clone(), stale.clone(), unknown.clone()], LONG).await;
    assert_eq!(lost.expect("answers"), [foreign, stale, unknown]);
    store.release(claim.clone(), true).await.expect("releases");
    assert_eq!(store.renew(vec![claim.clone()], LONG).await.expect("answers"), [claim]);
}

/// Renewing in time keeps a claim.
pub async fn b49_a_renewed_claim_does_not_run_out(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let (claim, _) = take_for(&*store, "a", SHORT).await;
    assert!(store.renew(vec![claim], LONG).await.expect("answers").is_empty());
    sleep(SHORT * 2).await;
    let outcome = store.claim(request_by("b", LONG)).await.expect("answers");
    assert!(matches!(outcome, ClaimOutcome::Held { .. }), "{outcome:?}");
}

/// Nobody took it over: its holder goes on, and can renew it.
pub async fn a_claim_past_its_time_is_held_until_somebody_takes_it(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let (claim, _) = take_for(&*store, "a", SHORT).await;
    sleep(SHORT * 2).await;
    store.commit(claim.clone(), commit(0, 1)).await.expect("is still its holder's");
    assert!(store.renew(vec![claim], LONG).await.expect("answers").is_empty());
    let outcome = store.claim(request_by("b", LONG)).await.expect("answers");
    assert!(matches!(outcome, ClaimOutcome::Held { .. }), "{outcome:?}");
}

/// A second taking by the same owner ends what the first may write.
pub async fn b51_a_holder_that_asks_again_ends_its_own_epoch(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let first = take(&*store, "a").await;
    let (second, clean) = take_for(&*store, "a", LONG).await;
    assert!(second.epoch > first.epoch && clean);
    let refused = store.commit(first, commit(0, 1)).await.expect_err("is of an older epoch");
    assert!(matches!(refused, CommitError::Fenced), "{refused:?}");
    store.commit(second, commit(0, 1)).await.expect("is of the present epoch");
}

/// A lost answer does not turn an unclean taking into a clean one.
pub async fn asking_again_after_an_unclean_taking_is_still_unclean(fixture: Fixture) {
    let store = fixture.open_registered().await;
    take_for(&*store, "a", SHORT).await;
    sleep(SHORT * 2).await;
    assert!(!take_for(&*store, "b", LONG).await.1);
    assert!(!take_for(&*store, "b", LONG).await.1);
}

/// Who let it go knows of a process that may have died in a handler: the next holder, and only that, is told.
pub async fn a_claim_let_go_uncleanly_is_taken_uncleanly(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    store.release(claim.clone(), false).await.expect("releases");
    store.release(claim, true).await.expect("is its no more: says nothing");
    store.close().await;
    let store = fixture.open().await;
    let (claim, clean) = take_for(&*store, "b", LONG).await;
    assert!(!clean);
    store.release(claim, true).await.expect("releases");
    let (claim, clean) = take_for(&*store, "c", LONG).await;
    assert!(clean, "b said that it was");
    // What is kept of a taking outlives a reset.
    store.release(claim, false).await.expect("releases");
    let claim = take(&*store, "d").await;
    let reset = Reset { claim, to: Position::BEGINNING, time_to_live: LONG };
    store.reset(reset).await.expect("resets");
    assert!(!take_for(&*store, "d", LONG).await.1);
}

/// A release that comes late lets nobody else's claim go.
pub async fn releasing_anothers_claim_does_nothing(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let (first, _) = take_for(&*store, "a", SHORT).await;
    sleep(SHORT * 2).await;
    let second = take(&*store, "b").await;
    store.release(first, true).await.expect("is no error");
    load(&*store, &second).await;
    let outcome = store.claim(request_by("c", LONG)).await.expect("answers");
    assert!(matches!(outcome, ClaimOutcome::Held { .. }), "{outcome:?}");
}

fn with_names(name: &str, names: &[&str], time_to_live: std::time::Duration) -> ClaimRequest {
    ClaimRequest { names: texts(names), ..request_by(name, time_to_live) }
}

/// During a deployment the older process, which lacks a name, leaves the claim to the newer.
pub async fn b53_who_lacks_a_stored_name_stands_back_for_one_that_has_it(fixture: Fixture) {
    let store = fixture.open().await;
    store.register(vec![super::registration(&["paid", "placed"])]).await.expect("registers");
    let holder = take(&*store, "holder").await;
    let outcome = store.claim(with_names("new", &["paid", "placed", "shipped"], LONG)).await.expect("answers");
    assert!(matches!(outcome, ClaimOutcome::Held { .. }), "{outcome:?}");
    store.release(holder, true).await.expect("releases");
    let outcome = store.claim(with_names("old", &["placed"], LONG)).await.expect("answers");
    assert_eq!(outcome, ClaimOutcome::StandBack { owner: owner("new"), lacking: texts(&["paid"]) });
    let outcome = store.claim(with_names("new", &["paid", "placed"], LONG)).await.expect("answers");
    let ClaimOutcome::Taken { claim, clean: true } = outcome else { unreachable!("new has them all: {outcome:?}") };
    store.release(claim, true).await.expect("releases");
    // It no longer waits, and nobody else has the names: an old process is better than none.
    let outcome = store.claim(with_names("old", &["placed"], LONG)).await.expect("answers");
    assert!(matches!(outcome, ClaimOutcome::Taken { .. }), "{outcome:?}");
}

/// A waiting process counts for its time to live after it asked.
pub async fn nobody_stands_back_for_one_that_stopped_asking(fixture: Fixture) {
    let store = fixture.open().await;
    store.register(vec![super::registration(&["paid", "placed"])]).await.expect("registers");
    let holder = take(&*store, "holder").await;
    store.claim(with_names("new", &["paid", "placed"], SHORT)).await.expect("answers");
    store.release(holder, true).await.expect("releases");
    sleep(SHORT * 2).await;
    let outcome = store.claim(with_names("old", &["placed"], LONG)).await.expect("answers");
    assert!(matches!(outcome, ClaimOutcome::Taken { clean: true, .. }), "{outcome:?}");
}

/// Every segment is listed with its holder, or with none.
pub async fn b129_claims_are_listed(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let unheld = store.claims("shop".to_owned()).await.expect("lists");
    let [status] = &unheld[..] else { unreachable!("one segment, not {unheld:?}") };
    assert_eq!((&status.consumer, status.segment, &status.owner), (&orders(), Segment::WHOLE, &None));
    let claim = take(&*store, "a").await;
    let held = store.claims("shop".to_owned()).await.expect("lists");
    assert_eq!(held[0].epoch, claim.epoch);
    assert_eq!(held[0].owner.as_ref().map(|(owner, _)| owner), Some(&owner("a")));
    store.release(claim.clone(), true).await.expect("releases");
    let released = store.claims("shop".to_owned()).await.expect("lists");
    assert_eq!((released[0].epoch, &released[0].owner), (claim.epoch, &None));
    assert!(store.claims("another".to_owned()).await.expect("lists").is_empty());
}

/// A claim is of a consumer that was registered, in a segment it has.
pub async fn an_unknown_consumer_cannot_be_claimed(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let unknown = ClaimRequest { consumer: consumer("nobody"), ..request_by("a", LONG) };
    let part = ClaimRequest { segment: Segment { number: 1, mask: 1 }, ..request_by("a", LONG) };
    for request in [unknown, part] {
        let refused = store.claim(request).await.expect_err("is unknown");
        assert!(matches!(refused, StoreError::Refused(_)), "{refused:?}");
    }
}
