//! Bundles: collected, checked as a whole, then started.

mod builder;
mod census;
mod dead_events;
#[cfg(test)]
mod fixture;
mod log;
mod prepared;
mod problem;
mod reset;
mod running;
mod shutdown;
mod start;
mod validation;
mod wait;
mod watcher;

pub use builder::BundleBuilder;
pub use dead_events::{DeadEvents, Request};
pub use log::Log;
pub use problem::{Problem, Report, StartError};
pub use reset::ResetError;
pub use running::Running;
pub use shutdown::{Drained, DrainedConsumer, ShutdownError, shutdown_signal};
pub use wait::WaitError;

pub(crate) use prepared::{ConsumerSpec, Prepared};

/// An application's components, together with all they need to consume events.
#[derive(Clone, Copy, Debug)]
pub enum Bundle {}

impl Bundle {
    /// Begins a bundle.
    ///
    /// The name is part of every consumer's stored key: 1 to 64 bytes of `a-z`, `0-9`, `-` and `_`. Under another name a
    /// bundle begins anew.
    pub fn builder(name: impl Into<String>) -> BundleBuilder {
        BundleBuilder::new(name.into())
    }
}
