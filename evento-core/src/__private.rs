//! What the attributes' expansion names. Not for people; no stability.

use std::any::Any;

pub use core::{option::Option, time::Duration};
pub use std::borrow::Cow;

pub use inventory;

pub use crate::{
    __location as location, CheckpointMode, Erased, Event, EventType, ExecutorName, HandlerDescriptor, HandlerOutput,
    Kind, Location, OnDead, OnTransient, StartAt,
    component::{Component, HandlesEvent, has_handlers, is_projector},
    handler::{called, decode},
};

/// One linked component: the only thing `inventory` holds.
#[derive(Debug)]
pub struct Entry(pub crate::ComponentDescriptor);

inventory::collect!(Entry);

impl Entry {
    /// The entry of `T`.
    #[must_use]
    pub const fn of<T: Component + has_handlers>() -> Self {
        Self(crate::ComponentDescriptor::of::<T>())
    }
}

/// The place where it stands.
#[doc(hidden)]
#[macro_export]
macro_rules! __location {
    () => {
        $crate::Location { file: ::core::file!(), line: ::core::line!(), module: ::core::module_path!() }
    };
}

/// Holds where `#[projector]` is on the struct `T`.
pub const fn projector<T: is_projector>() {}

/// A version that is a constant.
///
/// # Panics
/// Where it is 0, which then does not compile.
#[must_use]
#[track_caller]
pub const fn version(version: u32) -> u32 {
    assert!(version >= 1, "`version` is 1 to 4294967295");
    version
}

/// A `retry` that is a constant.
///
/// # Panics
/// Unless it is -1 to 1000, which then does not compile.
#[must_use]
#[track_caller]
pub const fn retry(retry: i32) -> i32 {
    assert!(retry >= -1 && retry <= 1000, "`retry` is -1 to 1000");
    retry
}

/// A `retry` that is a constant, beside an `executor`.
///
/// # Panics
/// Unless it is 0 to 1000, which then does not compile.
#[must_use]
#[track_caller]
pub const fn retry_under_executor(retry: i32) -> i32 {
    assert!(
        retry != -1,
        "`retry = -1` is for ever, and no handler may hold an executor for ever: write how often to retry (0 to 1000), \
         or leave out the executor"
    );
    self::retry(retry)
}

/// The text that identifies an event's aggregate, borrowed where the field is a text already.
pub fn aggregate_id<T: ToString + Any>(id: &T) -> Cow<'_, str> {
    match (id as &dyn Any).downcast_ref::<String>() {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(id.to_string()),
    }
}

/// What the executors of a plan are written as: texts or constants.
#[derive(Debug)]
pub struct Executor<T>(pub T);

impl Executor<&'static str> {
    /// The executor's name.
    #[must_use]
    #[track_caller]
    pub const fn name(self) -> ExecutorName {
        ExecutorName::new(self.0)
    }
}

impl Executor<ExecutorName> {
    /// The executor's name.
    #[must_use]
    pub const fn name(self) -> ExecutorName {
        self.0
    }
}

/// A component, given its type back.
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
