//! Rules of the event log.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use evento_core::{
    NewEvent, Position, Segment, Sequence, key_hash,
    store::{Append, AppendError, Appended, Expected, Filter, Head, ReadAggregate, ReadAt, StoreError},
};

use super::{Fixture, any, event, fill, filter, ids, order, page, read_after};

/// The events at these positions, with bounds too large to matter, but for the payload's.
fn at(positions: &[Position]) -> ReadAt {
    ReadAt { positions: positions.to_vec(), max_bytes: usize::MAX, max_payload: 100 }
}

/// Every part of an event comes back as it went in, with the place and time the log gave it.
pub async fn appended_events_are_read_back_whole(fixture: Fixture) {
    let store = fixture.open().await;
    let given = NewEvent { payload: vec![0xff, 0, b'"'], ..event("e-1", "42", "placed") }
        .with_metadata("correlation-id", "ä\"b")
        .in_context("other");
    let appended = store.append(any(vec![given])).await.expect("appends");
    assert_eq!(appended.appended, 1);
    let read = store.read_at(at(&[appended.position])).await.expect("reads");
    let [found] = &read.events[..] else { unreachable!("one event at {}, not {read:?}", appended.position) };
    assert_eq!(found.position(), appended.position);
    assert!(found.position() > Position::BEGINNING);
    assert_eq!((found.id(), found.name(), found.context()), ("e-1", "placed", "other"));
    assert_eq!(found.aggregate().to_owned(), order("42"));
    assert_eq!(found.key_hash(), key_hash("order", "42"));
    assert_eq!(found.sequence(), Sequence(1));
    assert_eq!(found.payload(), [0xff, 0, b'"']);
    assert_eq!(found.oversize(), None);
    assert_eq!(found.metadata().get("correlation-id"), Some("ä\"b"));
    assert!(found.recorded_at().0 > 1_500_000_000_000_000, "microseconds of this century");
}

/// Sequences of one aggregate rise by one, with rising positions, across appends and beside other aggregates.
pub async fn events_of_an_aggregate_are_numbered_without_holes(fixture: Fixture) {
    let store = fixture.open().await;
    fill(&*store, "a", 7, 2).await;
    fill(&*store, "b", 1, 1).await;
    fill(&*store, "c", 6, 3).await;
    let read = page(&*store, read_after(Position::BEGINNING, &filter(&["placed"]))).await;
    assert_eq!(read.events.len(), 14);
    assert!(read.events.is_sorted_by(|one, next| one.position() < next.position()));
    for id in ["0", "1", "2"] {
        let of_order = read.events.iter().filter(|event| event.aggregate().id == id);
        let sequences: Vec<_> = of_order.map(|event| event.sequence().0).collect();
        assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>(), "of order {id}");
    }
}

/// An append made twice is made once, and answers where it was made.
pub async fn an_append_whose_ids_are_all_known_appends_nothing(fixture: Fixture) {
    let store = fixture.open().await;
    let first = fill(&*store, "a", 3, 1).await;
    fill(&*store, "b", 2, 1).await;
    let again = fill(&*store, "a", 3, 1).await;
    assert_eq!(again, Appended { position: first.position, appended: 0 });
    let read = page(&*store, read_after(Position::BEGINNING, &filter(&["placed"]))).await;
    assert_eq!(ids(&read.events), ["a1", "a2", "a3", "b1", "b2"]);
}

/// An append whose answer was lost is made again as it was, though what it expects no longer holds.
pub async fn a_repeat_is_recognised_whatever_it_expected(fixture: Fixture) {
    let store = fixture.open().await;
    let append = Append { expected: Expected::NoEvents, events: vec![event("1", "a", "placed")] };
    let first = store.append(append.clone()).await.expect("appends");
    let again = store.append(append).await.expect("is recognised");
    assert_eq!(again, Appended { position: first.position, appended: 0 });
}

/// What is partly known is refused, named, and leaves nothing behind.
pub async fn a_partly_known_append_is_refused_whole(fixture: Fixture) {
    let store = fixture.open().await;
    fill(&*store, "a", 2, 1).await;
    let mixed = ["new", "a1", "newer", "a2"].map(|id| event(id, if id.len() == 2 { "0" } else { "9" }, "placed"));
    let refused = store.append(any(mixed.to_vec())).await.expect_err("is mixed");
    assert!(matches!(&refused, AppendError::PartlyKnown { known } if known == &[1, 3]), "{refused:?}");
    let read = page(&*store, read_after(Position::BEGINNING, &filter(&["placed"]))).await;
    assert_eq!(ids(&read.events), ["a1", "a2"]);
    // The sequence of the order that was refused is unused too.
    store.append(any(vec![event("new", "9", "placed")])).await.expect("appends");
    let read = page(&*store, read_after(read.scanned_to, &filter(&["placed"]))).await;
    assert_eq!(read.events[0].sequence(), Sequence(1));
}

/// An id belongs to one event for ever.
pub async fn an_altered_repeat_is_refused(fixture: Fixture) {
    let store = fixture.open().await;
    let known = event("1", "a", "placed");
    store.append(any(vec![known.clone()])).await.expect("appends");
    let altered = [
        NewEvent { aggregate: order("b"), ..known.clone() },
        NewEvent { name: "shipped".into(), ..known.clone() },
        NewEvent { context: "other".into(), ..known.clone() },
        NewEvent { payload: b"{}".to_vec(), ..known.clone() },
    ];
    for event in altered {
        let refused = store.append(any(vec![event.clone()])).await.expect_err("is altered");
        assert!(matches!(&refused, AppendError::Altered { id } if id == "1"), "{event:?}: {refused:?}");
    }
    let later = NewEvent { metadata: [("a", "b")].into_iter().fold(Default::default(), with), ..known };
    assert_eq!(store.append(any(vec![later])).await.expect("metadata may differ").appended, 0);
}

fn with(mut metadata: evento_core::Metadata, (name, value): (&str, &str)) -> evento_core::Metadata {
    metadata.insert(name, value);
    metadata
}

/// An id is in an append once.
pub async fn an_id_twice_in_one_append_is_refused(fixture: Fixture) {
    let store = fixture.open().await;
    let twice = vec![event("1", "a", "placed"), event("2", "a", "placed"), event("1", "a", "placed")];
    let refused = store.append(any(twice)).await.expect_err("is doubled");
    assert!(matches!(&refused, AppendError::Altered { id } if id == "1"), "{refused:?}");
    assert_eq!(store.head().await.expect("answers"), Head::default());
}

/// An aggregate is appended to from where the caller read it, or not at all.
pub async fn an_expected_sequence_must_be_the_last(fixture: Fixture) {
    let store = fixture.open().await;
    let append = |expected, id: &str| store.append(Append { expected, events: vec![event(id, "a", "placed")] });
    append(Expected::NoEvents, "1").await.expect("is new");
    append(Expected::At(Sequence(1)), "2").await.expect("is at 1");
    for (expected, number) in [(Expected::NoEvents, 0), (Expected::At(Sequence(1)), 1), (Expected::At(Sequence(3)), 3)]
    {
        let refused = append(expected, "3").await.expect_err("is at 2");
        let AppendError::Conflict { expected, actual } = refused else { unreachable!("{refused:?}") };
        assert_eq!((expected, actual), (Sequence(number), Sequence(2)));
    }
    append(Expected::At(Sequence(2)), "3").await.expect("is at 2");
}

/// What is expected is said of one aggregate.
pub async fn an_expected_sequence_goes_with_one_aggregate(fixture: Fixture) {
    let store = fixture.open().await;
    let events = vec![event("1", "a", "placed"), event("2", "b", "placed")];
    let refused = store.append(Append { expected: Expected::NoEvents, events }).await.expect_err("are two");
    assert!(matches!(refused, AppendError::SeveralAggregates), "{refused:?}");
}

/// An event that no store takes is named by its place.
pub async fn an_invalid_event_is_refused_by_its_place(fixture: Fixture) {
    let store = fixture.open().await;
    let broken = [
        NewEvent { name: "".into(), ..event("2", "a", "placed") },
        NewEvent { context: "a\0b".into(), ..event("2", "a", "placed") },
        NewEvent { id: None, ..event("2", "a", "placed") },
    ];
    for broken in broken {
        let refused = store.append(any(vec![event("1", "a", "placed"), broken])).await.expect_err("is invalid");
        assert!(matches!(refused, AppendError::Invalid { index: 1, .. }), "{refused:?}");
    }
    assert_eq!(store.head().await.expect("answers"), Head::default());
}

/// An append of no event is a success with nothing to wait for.
pub async fn an_append_of_nothing_does_nothing(fixture: Fixture) {
    let store = fixture.open().await;
    fill(&*store, "a", 1, 1).await;
    let appended = store.append(any(Vec::new())).await.expect("is fine");
    assert_eq!(appended, Appended { position: Position::BEGINNING, appended: 0 });
}

/// A page with nothing on it says how far it looked; the end is the head.
pub async fn b22_an_empty_page_is_not_the_end(fixture: Fixture) {
    let store = fixture.open().await;
    fill(&*store, "a", 20, 1).await;
    store.append(any(vec![event("last", "a", "shipped")])).await.expect("appends");
    let (mut after, mut empty, mut found) = (Position::BEGINNING, 0, Vec::new());
    loop {
        let read = read_after(after, &filter(&["shipped"]));
        let page = page(&*store, evento_core::store::ReadLog { max_scanned: 5, ..read }).await;
        assert!(page.scanned_to > after, "every page is progress");
        assert!(page.scanned_to <= page.head);
        empty += usize::from(page.events.is_empty());
        found.extend(page.events);
        after = page.scanned_to;
        if page.scanned_to == page.head {
            break;
        }
    }
    assert!(empty >= 4, "five positions at a time over twenty others");
    assert_eq!(ids(&found), ["last"]);
}

/// Events of other names move the reader on.
pub async fn b47_r18_what_does_not_match_is_progress(fixture: Fixture) {
    let store = fixture.open().await;
    let last = fill(&*store, "a", 50, 5).await.position;
    for names in [&["shipped"][..], &[]] {
        let read = page(&*store, read_after(Position::BEGINNING, &filter(names))).await;
        assert!(read.events.is_empty());
        assert_eq!((read.scanned_to, read.head), (last, last));
    }
}

/// A page holds what the filter takes, and all of it.
pub async fn a_page_takes_names_context_and_segment(fixture: Fixture) {
    let store = fixture.open().await;
    let mut events = Vec::new();
    for n in 0..60 {
        let name = ["placed", "shipped", "paid"][n % 3];
        let event = event(&n.to_string(), &(n % 7).to_string(), name);
        events.push(if n % 5 == 0 { event.in_context("other") } else { event });
    }
    store.append(any(events.clone())).await.expect("appends");
    for segment in [Segment::WHOLE, Segment { number: 0, mask: 1 }, Segment { number: 2, mask: 3 }] {
        let names = super::texts(&["paid", "placed"]);
        let taken = Arc::new(Filter { names, context: "default".to_owned(), segment });
        let read = page(&*store, read_after(Position::BEGINNING, &taken)).await;
        let expected: Vec<_> = events
            .iter()
            .filter(|event| taken.takes(&event.name, &event.context, event.aggregate.key_hash()))
            .filter_map(|event| event.id.as_ref().map(|id| id.as_str()))
            .collect();
        assert!(!expected.is_empty(), "{segment} takes some of them");
        assert_eq!(ids(&read.events), expected, "in {segment}");
    }
}

/// However a page is cut, the next one goes on behind it: nothing twice, nothing left out.
pub async fn a_page_ends_at_its_limit_and_the_next_goes_on(fixture: Fixture) {
    let store = fixture.open().await;
    let mixed = (0..40).map(|n| event(&format!("{n:02}"), "a", if n % 4 == 1 { "shipped" } else { "placed" }));
    store.append(any(mixed.collect())).await.expect("appends");
    let whole = page(&*store, read_after(Position::BEGINNING, &filter(&["placed"]))).await;
    assert_eq!(whole.events.len(), 30);
    // An event's payload here has 11 bytes.
    for (max_events, max_bytes, max_scanned) in
        [(7, 1 << 20, 1 << 20), (100, 30, 1 << 20), (100, 1 << 20, 6), (3, 40, 5)]
    {
        let (mut after, mut all) = (Position::BEGINNING, Vec::new());
        loop {
            let read = read_after(after, &filter(&["placed"]));
            let read = evento_core::store::ReadLog { max_events, max_bytes, max_scanned, ..read };
            let page = page(&*store, read).await;
            assert!(page.events.len() <= max_events);
            let bytes: usize = page.events.iter().rev().skip(1).map(|event| event.payload().len()).sum();
            assert!(bytes < max_bytes, "the byte limit ends a page");
            assert!(page.scanned_to > after);
            assert!(page.events.last().is_none_or(|last| last.position() <= page.scanned_to));
            all.extend(page.events);
            after = page.scanned_to;
            if page.scanned_to == page.head {
                break;
            }
        }
        assert_eq!(ids(&all), ids(&whole.events), "by {max_events} events, {max_bytes} bytes, {max_scanned} positions");
    }
}

/// A byte limit below one event does not stop the reader.
pub async fn one_event_is_handed_over_whatever_its_size(fixture: Fixture) {
    let store = fixture.open().await;
    fill(&*store, "a", 3, 1).await;
    let read = read_after(Position::BEGINNING, &filter(&["placed"]));
    let page = page(&*store, evento_core::store::ReadLog { max_bytes: 1, ..read }).await;
    assert_eq!(ids(&page.events), ["a1"]);
    assert_eq!(page.scanned_to, page.events[0].position());
}

/// A payload over the limit is told of, not read; one at the limit is read.
pub async fn b92_an_oversize_payload_stays_in_the_log(fixture: Fixture) {
    let store = fixture.open().await;
    let sized = |id: &str, size| NewEvent { payload: vec![b'x'; size], ..event(id, "a", "placed") };
    store.append(any(vec![sized("at", 100), sized("over", 101), sized("far", 300_000)])).await.expect("appends");
    let read =
        evento_core::store::ReadLog { max_payload: 100, ..read_after(Position::BEGINNING, &filter(&["placed"])) };
    let page = page(&*store, read).await;
    let seen: Vec<_> = page.events.iter().map(|event| (event.payload().len(), event.oversize())).collect();
    assert_eq!(seen, [(100, None), (0, Some(101)), (0, Some(300_000))]);
    assert_eq!(page.events[1].name(), "placed", "the rest of it is there");
    let places: Vec<_> = page.events.iter().map(|event| event.position()).collect();
    let found = store.read_at(at(&places)).await.expect("reads");
    assert_eq!(found.events[2].oversize(), Some(300_000));
    let read = ReadAggregate {
        aggregate: order("a"),
        after: Position::BEGINNING,
        until: page.head,
        filter: filter(&["placed"]),
        max_events: 10,
        max_bytes: usize::MAX,
        max_payload: 300_000,
    };
    let whole = store.read_aggregate(read).await.expect("reads");
    assert_eq!(whole.events[2].payload().len(), 300_000, "with a larger limit it is read");
}

/// A reader that is at the head, or beyond it, stays where it is.
pub async fn nobody_reads_beyond_the_last_position(fixture: Fixture) {
    let store = fixture.open().await;
    let nothing = page(&*store, read_after(Position::BEGINNING, &filter(&["placed"]))).await;
    assert_eq!((nothing.scanned_to, nothing.head), (Position::BEGINNING, Position::BEGINNING));
    let last = fill(&*store, "a", 3, 1).await.position;
    assert_eq!(store.head().await.expect("answers"), Head { bound: last, committed: last });
    let beyond = Position::with_major(1, 0);
    for after in [last, Position::new(last.minor() + 100), beyond] {
        let page = page(&*store, read_after(after, &filter(&["placed"]))).await;
        assert!(page.events.is_empty());
        assert_eq!((page.scanned_to, page.head), (after, last));
    }
}

/// Events are read by position, in order; what is not there is left out.
pub async fn events_are_found_at_their_positions(fixture: Fixture) {
    let store = fixture.open().await;
    fill(&*store, "a", 5, 2).await;
    let read = page(&*store, read_after(Position::BEGINNING, &filter(&["placed"]))).await;
    let of = |place: usize| read.events[place].position();
    let last = Position::with_major(7, 1);
    let found = store.read_at(at(&[of(4), Position::new(1_000_000), of(1), last, Position::BEGINNING])).await;
    let found = found.expect("reads");
    assert_eq!((ids(&found.events), found.scanned_to), (vec!["a2", "a5"], last));
    assert!(store.read_at(at(&[])).await.expect("reads").events.is_empty());
}

/// What a bound on bytes cut off does not look like what is missing, and is found by asking again.
pub async fn a_read_by_position_that_is_cut_short_says_what_it_has_not_looked_at(fixture: Fixture) {
    let store = fixture.open().await;
    let sized = |id: &str| NewEvent { payload: vec![b'x'; 40], ..event(id, "a", "placed") };
    store.append(any(["1", "2", "3", "4"].map(sized).to_vec())).await.expect("appends");
    let read = page(&*store, read_after(Position::BEGINNING, &filter(&["placed"]))).await;
    let places: Vec<_> = read.events.iter().map(|event| event.position()).collect();
    let missing = Position::new(1_000_000);
    let asked = [places[3], missing, places[0], places[1]];
    for (max_bytes, expected) in [(0, 1), (40, 1), (41, 2), (80, 2), (81, 3)] {
        let found = store.read_at(ReadAt { max_bytes, ..at(&asked) }).await.expect("reads");
        assert_eq!(found.events.len(), expected, "within {max_bytes} bytes");
        assert_eq!(Some(found.scanned_to), found.events.last().map(|event| event.position()), "{max_bytes}");
    }
    let rest = store.read_at(ReadAt { max_bytes: 40, ..at(&[missing, missing]) }).await.expect("reads");
    assert!(rest.events.is_empty() && rest.scanned_to == missing, "was looked at and is not there");
    // A payload that is left in the log takes no memory.
    let lean = ReadAt { max_bytes: 40, max_payload: 39, ..at(&asked) };
    assert_eq!(store.read_at(lean).await.expect("reads").events.len(), 3);
}

/// One aggregate's matching events, between two positions, some at a time.
pub async fn one_aggregate_is_read_through_its_index(fixture: Fixture) {
    let store = fixture.open().await;
    let mixed = (0..30).map(|n| {
        event(&format!("{n:02}"), if n % 3 == 0 { "a" } else { "b" }, if n % 2 == 0 { "placed" } else { "shipped" })
    });
    store.append(any(mixed.collect())).await.expect("appends");
    let all = page(&*store, read_after(Position::BEGINNING, &filter(&["placed", "shipped"]))).await.events;
    let (first, last) = (all[3].position(), all[24].position());
    let read = |after, names: &[&str], max_events| ReadAggregate {
        aggregate: order("a"),
        after,
        until: last,
        filter: filter(names),
        max_events,
        max_bytes: usize::MAX,
        max_payload: 100,
    };
    let found = store.read_aggregate(read(first, &["placed"], 10)).await.expect("reads");
    assert_eq!((ids(&found.events), found.scanned_to), (vec!["06", "12", "18", "24"], last));
    let found = store.read_aggregate(read(all[4].position(), &["placed"], 2)).await.expect("reads");
    assert_eq!(ids(&found.events), ["06", "12"], "entered between two of its events");
    assert_eq!(found.scanned_to, all[12].position());
    let found = store.read_aggregate(read(found.scanned_to, &["placed", "shipped"], 2)).await.expect("reads");
    assert_eq!(ids(&found.events), ["15", "18"], "and gone on with from the last");
    let nothing = store.read_aggregate(read(first, &["paid"], 2)).await.expect("reads");
    assert!(nothing.events.is_empty() && nothing.scanned_to == last);
}

/// A bound on bytes ends a part, with one event at least, and the next part goes on where it ended.
pub async fn one_aggregate_is_read_in_parts_of_bounded_size(fixture: Fixture) {
    let store = fixture.open().await;
    let sized = |n: usize| NewEvent { payload: vec![b'x'; 10 * n], ..event(&n.to_string(), "a", "placed") };
    let until = store.append(any((1..=6).map(sized).collect())).await.expect("appends").position;
    for (max_bytes, expected) in [
        (0, &[&["1"][..], &["2"], &["3"], &["4"], &["5"], &["6"], &[]][..]),
        (60, &[&["1", "2", "3"], &["4", "5"], &["6"], &[]]),
        (211, &[&["1", "2", "3", "4", "5", "6"]]),
    ] {
        let mut after = Position::BEGINNING;
        for part in expected {
            let (filter, aggregate) = (filter(&["placed"]), order("a"));
            let read = ReadAggregate { aggregate, after, until, filter, max_events: 100, max_bytes, max_payload: 100 };
            let found = store.read_aggregate(read).await.expect("reads");
            assert_eq!(ids(&found.events), *part, "within {max_bytes} bytes");
            after = found.scanned_to;
        }
        assert_eq!(after, until);
    }
}

/// A wake comes after the append can be read, and only for an append.
pub async fn r75_an_append_wakes_readers_after_it_has_committed(fixture: Fixture) {
    let store = fixture.open().await;
    let woken = Arc::new(AtomicUsize::new(0));
    let (counted, notify) = (Arc::clone(&woken), Arc::new(tokio::sync::Notify::new()));
    let notified = Arc::clone(&notify);
    store.on_append(Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        notified.notify_one();
    }));
    store.head().await.expect("answers");
    store.append(any(vec![NewEvent { id: None, ..event("x", "a", "placed") }])).await.expect_err("is refused");
    assert_eq!(woken.load(Ordering::SeqCst), 0);
    let waiting = notify.notified();
    let appending = store.append(any(vec![event("1", "a", "placed")]));
    let read_on_waking = async {
        waiting.await;
        page(&*store, read_after(Position::BEGINNING, &filter(&["placed"]))).await
    };
    let (appended, read) = tokio::join!(appending, read_on_waking);
    appended.expect("appends");
    assert_eq!(ids(&read.events), ["1"]);
    assert_eq!(woken.load(Ordering::SeqCst), 1);
}

/// Many writers at once: everything once, each aggregate in order, each writer's appends in its order.
pub async fn r10_concurrent_appends_lose_and_double_nothing(fixture: Fixture) {
    let store = fixture.open().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            for n in 0..40 {
                let events =
                    (0..3).map(|part| event(&format!("{writer}-{n:02}-{part}"), &(n % 4).to_string(), "placed"));
                store.append(any(events.collect())).await.expect("appends");
            }
        });
    }
    while let Some(written) = writers.join_next().await {
        written.expect("no writer panics");
    }
    let events = page(&*store, read_after(Position::BEGINNING, &filter(&["placed"]))).await.events;
    assert_eq!(events.len(), 8 * 40 * 3);
    for writer in 0..8 {
        let own = ids(&events).into_iter().filter(|id| id.starts_with(&format!("{writer}-"))).collect::<Vec<_>>();
        assert!(own.is_sorted() && own.len() == 120, "writer {writer}");
    }
    for id in 0..4 {
        let sequences = events.iter().filter(|it| it.aggregate().id == id.to_string()).map(|it| it.sequence().0);
        assert!(sequences.eq(1..=240), "order {id}");
    }
}

/// Closing and opening changes nothing.
pub async fn what_was_appended_is_there_after_reopening(fixture: Fixture) {
    let store = fixture.open().await;
    let last = fill(&*store, "a", 3, 1).await.position;
    store.close().await;
    let store = fixture.open().await;
    let read = page(&*store, read_after(Position::BEGINNING, &filter(&["placed"]))).await;
    assert_eq!(ids(&read.events), ["a1", "a2", "a3"]);
    assert!(fill(&*store, "b", 1, 1).await.position > last);
}

/// After closing, every call answers that the store is unavailable.
pub async fn a_closed_store_is_unavailable(fixture: Fixture) {
    let store = fixture.open_registered().await;
    tokio::join!(store.close(), store.close());
    store.close().await;
    let refused = store.append(any(vec![event("1", "a", "placed")])).await.expect_err("is closed");
    assert!(matches!(refused, AppendError::Store(StoreError::Unavailable { .. })), "{refused:?}");
    let refused = store.head().await.expect_err("is closed");
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused:?}");
    let refused = store.claim(super::request_by("a", super::LONG)).await.expect_err("is closed");
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused:?}");
}
