//! What is told: spans, the census, the drain report, and ids that are carried on.

use evento_core::{Context, Event, Metadata, NewEvent, RecordedParts, Sequence, Timestamp};
use evento_runtime::testing::Harness;
use evento_tests::{
    probe::{Forever, Probe, Thrice, happened},
    told::Told,
};

use crate::kit::at;

#[tokio::test(start_paused = true)]
async fn one_span_per_attempt_names_component_event_position_aggregate_and_attempt() {
    let told = Told::listen();
    let probe = Probe::failing(|call| call.attempt == 1);
    let test = Harness::new().provide(Thrice(probe)).start().await.unwrap();
    test.given([happened("o-1", 7)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    let spans = told.lines(&["attempt{", "new"]);
    assert_eq!(spans.len(), 2, "{spans:#?}");
    for (span, attempt) in spans.iter().zip(["attempt=1", "attempt=2"]) {
        let fields = ["component=\"Thrice\"", "event=\"probe.happened\"", "position=1", "aggregate=probe/o-1", attempt];
        assert!(fields.iter().all(|field| span.contains(field)), "{span}");
    }
    let failed = told.said(&["WARN", "attempt failed"]);
    for part in ["attempt{", "attempt=1", "handler=\"on_happened\"", "probe.rs:", "told to fail"] {
        assert!(failed.contains(part), "{part}: {failed}");
    }
}

/// What a handler says stands within its attempt's span, over an await too.
#[tokio::test(start_paused = true)]
async fn what_a_handler_says_after_an_await_is_within_its_attempts_span() {
    let told = Told::listen();
    let probe = Probe::doing(|call| async move {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        tracing::info!("handling {}", call.number);
        Ok(())
    });
    let test = Harness::new().provide(Forever(probe)).start().await.unwrap();
    test.given([happened("a", 41), happened("a", 42)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert!(told.said(&["handling 41"]).contains("position=1"));
    assert!(told.said(&["handling 42"]).contains("position=2"));
}

#[tokio::test(start_paused = true)]
async fn start_up_lists_every_component_and_a_shutdown_what_it_finished() {
    let told = Told::listen();
    let test = Harness::new().provide(Forever(Probe::new())).provide(Thrice(Probe::new())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    let drained = test.shutdown().await.unwrap();
    for component in ["Forever", "Thrice"] {
        let line = told.said(&["component linked", component]);
        for part in ["projector", "handlers=2", "probe.rs:", "checkpoint=\"watermark\"", "version=1"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    let report = told.said(&["drained 2 consumers"]);
    assert!(report.contains("test/projector/Forever/v1/default at 1"), "{report}");
    assert!(drained.to_string().contains("Thrice/v1/default at 1"), "{drained}");
}

/// The ids of a chain: the correlation id stays, the causation id is the event before.
#[tokio::test(start_paused = true)]
async fn correlation_and_causation_ids_are_carried_in_the_metadata() {
    let first = NewEvent::of(&happened("a", 1)).unwrap();
    let parts = |id: &'static str, metadata: &'static str| RecordedParts {
        position: at(1),
        id,
        name: evento_tests::probe::Happened::NAME,
        context: "default",
        aggregate: evento_core::AggregateRef { kind: "probe", id: "a" },
        sequence: Sequence(1),
        metadata,
        payload: b"null",
        oversize: None,
        recorded_at: Timestamp(0),
    };
    let beginning = Context::fake_of(parts("e-1", ""));
    let second = beginning.caused(first.clone());
    assert_eq!(second.metadata.get(Metadata::CORRELATION_ID), Some("e-1"));
    assert_eq!(second.metadata.get(Metadata::CAUSATION_ID), Some("e-1"));
    let json = second.metadata.to_json();
    let third = Context::fake_of(parts("e-2", json.leak())).caused(first);
    assert_eq!(third.metadata.get(Metadata::CORRELATION_ID), Some("e-1"));
    assert_eq!(third.metadata.get(Metadata::CAUSATION_ID), Some("e-2"));
}
