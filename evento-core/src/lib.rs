//! The words and contracts of Evento.
//!
//! This crate holds what a handler's author and a store's author type: [`Event`], the component attributes,
//! [`Context`], the marks of a failure ([`FaultExt`]), plans that the compiler checks ([`plan!`]), and the traits a
//! store implements ([`store`]). It has no runtime, no clock and no I/O; those live in `evento-runtime`.
//!
//! ```
//! use evento_core::{Context, Event, event_handler, projector};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Event, Serialize, Deserialize)]
//! #[event(name = "order.placed", aggregate = "order")]
//! pub struct OrderPlaced {
//!     #[event(aggregate_id)]
//!     order_id: String,
//!     total_cents: i64,
//! }
//!
//! #[projector(version = 1)]
//! pub struct Totals;
//!
//! #[projector]
//! impl Totals {
//!     #[event_handler]
//!     async fn on_placed(&self, event: &OrderPlaced, ctx: &Context) -> anyhow::Result<()> {
//!         assert_eq!(ctx.attempt(), 1);
//!         assert_eq!(event.total_cents, 250);
//!         Ok(())
//!     }
//! }
//!
//! // A handler is a plain method: a test calls it.
//! # fn main() {
//! let event = OrderPlaced { order_id: "o-1".into(), total_cents: 250 };
//! let ctx = Context::fake();
//! let handled = Totals.on_placed(&event, &ctx);
//! # drop(handled);
//! # }
//! ```
#![doc = include_str!("../docs/expansion.md")]

extern crate self as evento_core;

mod component;
mod context;
mod event;
mod executor;
mod fault;
mod future;
mod handler;
pub mod plan;
mod registry;
pub mod retry;
mod segment;
pub mod store;

pub use component::{
    CheckpointMode, Component, ComponentDescriptor, Components, ConsumerKey, Handlers, HandlesEvent, IntoInstance,
    Kind, Location, OnDead, OnTransient, StartAt,
};
pub use context::Context;
pub use event::{
    Aggregate, AggregateRef, DEFAULT_CONTEXT, EncodeError, Event, EventId, IntoNewEvent, InvalidEvent, Metadata,
    NewEvent, ParsePositionError, Position, RecordedEvent, RecordedParts, Sequence, Timestamp,
};
pub use evento_macros::{Event, event_handler, projector};
pub use executor::ExecutorName;
pub use fault::{Fault, FaultExt, Faulty, classify};
pub use future::BoxFuture;
pub use handler::{Call, Called, DecodeError, Erased, EventType, HandlerDescriptor, HandlerOutput, RetryOption};
pub use registry::linked;
pub use segment::{Segment, key_hash};

/// What the attributes expand to names these; nothing here is for people to call.
#[doc(hidden)]
pub mod __private;
