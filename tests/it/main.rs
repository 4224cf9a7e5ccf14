//! The one integration binary.

mod checkpoint;
mod claim;
mod dead_event;
mod failure;
mod interceptor;
mod kit;
mod links;
mod process;
mod sequential;
mod shutdown;
mod source;
mod start;
mod store;
mod tracing;
mod ui;
