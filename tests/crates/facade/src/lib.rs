//! A crate through which others reach `evento_core`.

pub use evento_core;
