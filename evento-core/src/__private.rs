//! What the attributes' expansion names. Not for people; no stability.

pub use core::{any::TypeId, option::Option, time::Duration};
pub use std::{borrow::Cow, boxed::Box, string::ToString};

pub use inventory;

pub use crate::{
    Aggregate, BoxFuture, CheckpointMode, Context, Erased, Event, EventType, ExecutorName, HandlerDescriptor,
    HandlerOutput, Kind, Location, OnDead, RetryOption, StartAt,
    component::{Component, Handlers, HandlesEvent, is_projector, projector_handlers},
};

/// What a handler's glue answers with.
pub type Outcome = Result<(), anyhow::Error>;

/// One linked component: the only thing `inventory` holds.
#[derive(Debug)]
pub struct Entry(pub crate::ComponentDescriptor);

inventory::collect!(Entry);

/// Everything the two attributes say of `T`.
#[must_use]
pub const fn descriptor<T: Component + Handlers>() -> crate::ComponentDescriptor {
    crate::ComponentDescriptor {
        kind: T::KIND,
        name: T::NAME,
        version: T::VERSION,
        start: T::START,
        on_dead: T::ON_DEAD,
        checkpoint: T::CHECKPOINT,
        handlers: T::HANDLERS,
        type_id: TypeId::of::<T>,
        type_name: core::any::type_name::<T>,
        location: T::LOCATION,
    }
}

/// A receiver or an event, given its type back.
///
/// # Panics
/// Where the caller mixed two components up, which is a fault of the framework.
#[must_use]
#[expect(clippy::panic, reason = "a mix-up inside the framework; no input leads here")]
pub fn typed<T: 'static>(erased: &Erased) -> &T {
    match erased.downcast_ref() {
        Some(typed) => typed,
        None => panic!("evento: a `{}` was expected (a fault of the framework)", core::any::type_name::<T>()),
    }
}
