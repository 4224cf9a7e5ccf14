//! Stores: in memory, and in a SQLite file.
//!
//! Both answer to the contracts of [`evento_core::store`] and pass one conformance suite; the memory store refuses
//! whatever the others refuse.

pub(crate) mod decision;
mod memory;
pub(crate) mod process;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use memory::MemoryStore;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteStore, Synchronous};
