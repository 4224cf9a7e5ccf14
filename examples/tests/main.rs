//! The examples, run as a reader of the README would run them.

#![expect(clippy::unwrap_used, reason = "what a helper of a test cannot do fails the test")]

mod flights;
mod misconfigured;
mod quickstart;
mod transaction;
