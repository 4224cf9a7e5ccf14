use std::{error::Error, fmt, io};

use crate::store::StoreError;

/// What a failure says about trying again.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Fault {
    /// A dependency is down: the event is not to blame and is tried again.
    Transient,
    /// Nothing is known: tried again within the handler's budget, then dead.
    Ordinary,
    /// Trying again cannot help: straight to the dead event queue.
    Permanent,
}

/// An error type that knows what its failures say about trying again.
///
/// It is asked wherever it stands in an error's chain, once the bundle knows the type (`.classify::<MyError>()`).
pub trait Faulty: Error + Send + Sync + 'static {
    /// What this failure says.
    fn fault(&self) -> Fault;
}

/// Marks a failure: `call().await.transient()?`, `parse(text).permanent()?`.
pub trait FaultExt<T> {
    /// Trying again can help, and costs no budget where the event can stay open.
    ///
    /// # Errors
    /// The same error, marked.
    fn transient(self) -> Result<T, anyhow::Error>;

    /// Trying again cannot help.
    ///
    /// # Errors
    /// The same error, marked.
    fn permanent(self) -> Result<T, anyhow::Error>;
}

impl<T, E: Into<anyhow::Error>> FaultExt<T> for Result<T, E> {
    fn transient(self) -> Result<T, anyhow::Error> {
        self.map_err(|error| Marked::wrap(Fault::Transient, error.into()))
    }

    fn permanent(self) -> Result<T, anyhow::Error> {
        self.map_err(|error| Marked::wrap(Fault::Permanent, error.into()))
    }
}

/// A mark in an error's chain, above the error it speaks of.
#[derive(Debug)]
struct Marked {
    fault: Fault,
    source: Box<dyn Error + Send + Sync>,
}

impl Marked {
    fn wrap(fault: Fault, error: anyhow::Error) -> anyhow::Error {
        anyhow::Error::new(Self { fault, source: error.into() })
    }
}

impl fmt::Display for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.fault {
            Fault::Transient => "transient failure",
            Fault::Ordinary => "failure",
            Fault::Permanent => "permanent failure",
        })
    }
}

impl Error for Marked {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// What core itself can tell of an error, by type and never by text: marks first, then well-known types.
///
/// The outermost mark wins. Transient are I/O errors of the kinds refused, reset, aborted, broken pipe, timed out, not
/// connected, host and network unreachable, and a store that is unavailable. `None` where nothing is known.
#[must_use]
pub fn classify(error: &anyhow::Error) -> Option<Fault> {
    if let Some(marked) = error.chain().find_map(|cause| cause.downcast_ref::<Marked>()) {
        return Some(marked.fault);
    }
    error.chain().find_map(|cause| {
        let down = cause.downcast_ref::<io::Error>().is_some_and(|error| is_transient_kind(error.kind()))
            || matches!(cause.downcast_ref(), Some(StoreError::Unavailable { .. }));
        down.then_some(Fault::Transient)
    })
}

fn is_transient_kind(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        kind,
        Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::BrokenPipe
            | Kind::TimedOut
            | Kind::NotConnected
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
    )
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_mark_is_found_below_added_context_and_the_outermost_wins() {
        let failed: Result<(), _> = Err(io::Error::other("full"));
        let error = failed.permanent().context("saving").transient().context("handling").unwrap_err();
        assert_eq!(classify(&error), Some(Fault::Transient));
        let chain: Vec<_> = error.chain().map(ToString::to_string).collect();
        assert_eq!(chain, ["handling", "transient failure", "saving", "permanent failure", "full"]);
    }

    #[test]
    fn io_kinds_of_a_broken_connection_are_transient_by_type_and_others_are_not() {
        let of = |kind| classify(&anyhow::Error::new(io::Error::new(kind, "connection refused")));
        assert_eq!(of(io::ErrorKind::ConnectionRefused), Some(Fault::Transient));
        assert_eq!(of(io::ErrorKind::TimedOut), Some(Fault::Transient));
        assert_eq!(of(io::ErrorKind::NotFound), None);
        assert_eq!(classify(&anyhow::anyhow!("connection refused")), None);
    }
}
