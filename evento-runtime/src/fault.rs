//! Faults: what a failure says about trying again, asked of everyone who may know.

use std::{error::Error, fmt, sync::Arc};

use evento_core::{Fault, Faulty};

/// A classifier of the application's own.
pub(crate) type Classify = Arc<dyn Fn(&anyhow::Error) -> Option<Fault> + Send + Sync>;

/// Asks one cause whether it is of a registered type.
pub(crate) type Ask = fn(&(dyn Error + 'static)) -> Option<Fault>;

/// Asks whether a cause is an `E`, and what it says.
pub(crate) fn ask<E: Faulty>(cause: &(dyn Error + 'static)) -> Option<Fault> {
    cause.downcast_ref::<E>().map(E::fault)
}

/// Everyone who may know what a failure says, in the order they are asked. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Classifiers {
    application: Arc<[Classify]>,
    types: Arc<[Ask]>,
}

impl Classifiers {
    pub(crate) fn new(application: Vec<Classify>, types: Vec<Ask>) -> Self {
        Self { application: application.into(), types: types.into() }
    }

    /// What `error` says: the application's classifiers are asked first, then the types it registered (the outermost
    /// cause wins), then marks and well-known types, then an elapsed timeout. What nobody knows is ordinary.
    pub(crate) fn classify(&self, error: &anyhow::Error) -> Fault {
        let application = || self.application.iter().find_map(|classify| classify(error));
        let registered = || error.chain().find_map(|cause| self.types.iter().find_map(|ask| ask(cause)));
        let elapsed = || error.chain().any(<dyn Error>::is::<tokio::time::error::Elapsed>).then_some(Fault::Transient);
        application()
            .or_else(registered)
            .or_else(|| evento_core::classify(error))
            .or_else(elapsed)
            .unwrap_or(Fault::Ordinary)
    }
}

impl fmt::Debug for Classifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classifiers")
            .field("application", &self.application.len())
            .field("types", &self.types.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use anyhow::Context as _;
    use evento_core::FaultExt;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the payment service said {0}")]
    struct Payment(u16);

    impl Faulty for Payment {
        fn fault(&self) -> Fault {
            if self.0 == 503 { Fault::Transient } else { Fault::Permanent }
        }
    }

    fn knowing_payments(application: Vec<Classify>) -> Classifiers {
        Classifiers::new(application, vec![ask::<Payment>])
    }

    #[test]
    fn what_nobody_knows_is_ordinary() {
        assert_eq!(Classifiers::default().classify(&anyhow::anyhow!("connection refused")), Fault::Ordinary);
    }

    #[test]
    fn a_registered_type_is_asked_wherever_it_stands_in_the_chain() {
        let down = anyhow::Error::new(Payment(503)).context("paying").context("handling");
        let refused = anyhow::Error::new(Payment(402)).context("paying");
        assert_eq!(knowing_payments(vec![]).classify(&down), Fault::Transient);
        assert_eq!(knowing_payments(vec![]).classify(&refused), Fault::Permanent);
        assert_eq!(Classifiers::default().classify(&down), Fault::Ordinary);
    }

    #[test]
    fn the_applications_classifier_comes_first_and_may_pass() {
        let patient: Classify = Arc::new(|error| error.is::<Payment>().then_some(Fault::Transient));
        let classifiers = knowing_payments(vec![patient]);
        assert_eq!(classifiers.classify(&Payment(402).into()), Fault::Transient);
        assert_eq!(classifiers.classify(&anyhow::anyhow!("other")), Fault::Ordinary);
    }

    #[test]
    fn marks_and_io_kinds_are_known_without_registering_anything() {
        let marked = Err::<(), _>(anyhow::anyhow!("no such order")).permanent().context("handling").unwrap_err();
        assert_eq!(Classifiers::default().classify(&marked), Fault::Permanent);
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(Classifiers::default().classify(&reset.into()), Fault::Transient);
    }

    #[tokio::test(start_paused = true)]
    async fn an_elapsed_timeout_is_transient_anywhere_in_the_chain() {
        let never = std::future::pending::<()>();
        let elapsed = tokio::time::timeout(Duration::from_secs(1), never).await.context("asking").unwrap_err();
        assert_eq!(Classifiers::default().classify(&elapsed), Fault::Transient);
    }
}
