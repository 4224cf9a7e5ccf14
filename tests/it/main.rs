//! The one integration binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test, its helpers too, fails by panicking")]

mod chaos;
mod checkpoint;
mod claim;
mod dead_event;
mod failure;
mod harness;
mod interceptor;
mod kit;
mod links;
mod parallel;
mod process;
mod sequential;
mod shutdown;
mod simulation;
mod source;
mod start;
mod store;
mod tidy;
mod tracing;
mod ui;
