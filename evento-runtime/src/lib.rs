//! Runs Evento bundles.
//!
//! A bundle collects the components that the attributes of `evento-core` declare, refuses every misconfiguration
//! before it touches anything, and then drives each consumer.

mod bundle;
mod clock;
mod engine;
mod executor;
mod fault;
mod interceptor;
pub mod store;

pub use interceptor::{Delivery, Interceptor, Next};
