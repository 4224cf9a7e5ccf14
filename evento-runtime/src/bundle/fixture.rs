//! Components written by hand, as the attributes would write them, and a store that must never be opened.

use std::{borrow::Cow, sync::Arc};

use evento_core::{
    BoxFuture, CheckpointMode, Component, ComponentDescriptor, Event, EventType, ExecutorName, HandlerDescriptor,
    Handlers, Kind, Location, OnDead, OnTransient, RetryOption, StartAt,
    store::{OpenStore, Store, StoreError},
};
use serde::{Deserialize, Serialize};

use super::{Bundle, BundleBuilder};

/// A description whose opening fails the test.
#[derive(Debug, Default)]
pub(super) struct Untouched {
    pub(super) problems: Vec<String>,
}

impl OpenStore for Untouched {
    fn describe(&self) -> String {
        "untouched store".to_owned()
    }

    fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        panic!("opened before every check had passed")
    }
}

/// A bundle that lacks nothing but components.
pub(super) fn shop() -> BundleBuilder {
    Bundle::builder("shop").store(Untouched::default())
}

/// What is reported of a bundle in whose binary these components are linked.
pub(super) fn problems_of(builder: BundleBuilder, linked: &[&ComponentDescriptor]) -> Vec<String> {
    match builder.prepare_among(linked) {
        Ok(_) => Vec::new(),
        Err(refused) => refused.report().unwrap().problems().iter().map(ToString::to_string).collect(),
    }
}

macro_rules! events {
    ($($event:ident = $name:literal),*) => {
        $(#[derive(Serialize, Deserialize)]
        pub(super) struct $event;

        impl Event for $event {
            const NAME: &'static str = $name;
            const AGGREGATE: &'static str = "order";

            fn aggregate_id(&self) -> Cow<'_, str> {
                Cow::Borrowed("1")
            }
        })*
    };
}

events!(OrderPlaced = "order.placed", OrderPaid = "order.paid", OrderPaidElsewhere = "order.paid");

const fn handler<E: Event>(method: &'static str, file: &'static str, line: u32) -> HandlerDescriptor {
    HandlerDescriptor {
        method,
        event: EventType::of::<E>(),
        executor: None,
        retry: RetryOption::Unset,
        retry_delay: None,
        timeout: None,
        location: Location { file, line, module: "fixture" },
        call: |_, _| Ok(Box::pin(async { Ok(()) })),
    }
}

const fn under(executor: &'static str, handler: HandlerDescriptor) -> HandlerDescriptor {
    HandlerDescriptor { executor: Some(ExecutorName::new(executor)), ..handler }
}

macro_rules! components {
    ($($component:ident ($name:literal, $file:literal, $line:literal) [$($handler:expr),*])*) => {
        $(pub(super) struct $component;

        impl Component for $component {
            const KIND: Kind = Kind::Projector;
            const NAME: &'static str = $name;
            const VERSION: u32 = 1;
            const START: StartAt = StartAt::Beginning;
            const ON_DEAD: OnDead = OnDead::Park;
            const TRANSIENT: OnTransient = OnTransient::Spend;
            const CHECKPOINT: Option<CheckpointMode> = None;
            const LOCATION: Location = Location { file: $file, line: $line, module: "fixture" };
        }

        impl Handlers for $component {
            const HANDLERS: &'static [HandlerDescriptor] = &[$($handler),*];
        })*
    };
}

components! {
    Inline ("Inline", "src/inline.rs", 10) [
        handler::<OrderPlaced>("on_placed", "src/inline.rs", 14),
        handler::<OrderPaid>("on_paid", "src/inline.rs", 19)
    ]
    SecondInline ("Inline", "src/second.rs", 7) [handler::<OrderPlaced>("on_placed", "src/second.rs", 11)]
    Bare ("Bare", "src/bare.rs", 3) []
    Paid ("Paid", "src/paid.rs", 16) [handler::<OrderPaid>("on_paid", "src/paid.rs", 21)]
    PaidElsewhere ("PaidElsewhere", "src/elsewhere.rs", 29) [
        handler::<OrderPaidElsewhere>("on_paid_too", "src/elsewhere.rs", 33)
    ]
    Misspelt ("Misspelt", "src/orders.rs", 25) [
        under("read-modle", handler::<OrderPlaced>("on_total", "src/orders.rs", 31))
    ]
    Parallel ("Parallel", "src/parallel.rs", 2) [
        under("read-model", handler::<OrderPlaced>("on_placed", "src/parallel.rs", 5)),
        HandlerDescriptor {
            retry: RetryOption::Times(3),
            ..under("audit", handler::<OrderPaid>("on_paid", "src/parallel.rs", 9))
        }
    ]
}
