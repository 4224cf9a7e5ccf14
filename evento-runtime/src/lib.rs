//! Runs Evento bundles.
//!
//! A bundle collects the components that the attributes of `evento-core` declare, refuses every misconfiguration
//! before it touches anything, and then drives each consumer.

mod bundle;
mod clock;
mod config;
mod consumer;
mod engine;
mod executor;
mod fault;
mod interceptor;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
pub mod store;
mod sync;
pub mod testing;

pub use bundle::{
    Bundle, BundleBuilder, DeadEvents, Drained, DrainedConsumer, Log, Problem, Report, Request, ResetError, Running,
    ShutdownError, StartError, WaitError, shutdown_signal,
};
pub use config::{
    CheckpointSettings, ClaimSettings, ComponentSettings, ExecutorSettings, PageSettings, RetrySettings, Settings,
    SettingsError,
};
pub use consumer::{ConsumerState, ConsumerStatus, ExecutorStatus, FailingEvent};
pub use executor::{ConsumerExecutor, ExecutorKind, Pool};
pub use interceptor::{Delivery, Interceptor, Next};
