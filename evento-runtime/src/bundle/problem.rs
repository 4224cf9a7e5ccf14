use std::fmt;

use evento_core::{Location, store::StoreError};

/// One thing that keeps a bundle from starting: what is wrong, where, and what to write instead.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    what: String,
    location: Option<Location>,
    notes: Vec<String>,
    cure: String,
}

impl Problem {
    pub(crate) fn new(what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { what: what.into(), location: None, notes: Vec::new(), cure: cure.into() }
    }

    pub(crate) fn at(mut self, location: impl Into<Option<Location>>) -> Self {
        self.location = location.into();
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// What is wrong, with the names of everything involved.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Where in the application's source, if it is there.
    #[must_use]
    pub fn location(&self) -> Option<Location> {
        self.location
    }

    /// What else is good to know: other places, names that would have been right.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What to write instead.
    #[must_use]
    pub fn cure(&self) -> &str {
        &self.cure
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        for line in self.notes.iter().chain([&self.cure]) {
            write!(f, "\n{line}")?;
        }
        Ok(())
    }
}

/// Everything that keeps a bundle from starting, found before anything was opened.
///
/// The order is the same in every run and profile.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    bundle: String,
    problems: Vec<Problem>,
}

impl Report {
    pub(crate) fn new(bundle: impl Into<String>, problems: Vec<Problem>) -> Self {
        Self { bundle: bundle.into(), problems }
    }

    /// The bundle's name.
    #[must_use]
    pub fn bundle(&self) -> &str {
        &self.bundle
    }

    /// The problems; at least one.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.len();
        let problems = if count == 1 { "problem" } else { "problems" };
        write!(f, "bundle `{}` cannot start: {count} {problems}, nothing was opened or started", self.bundle)?;
        for (number, problem) in (1..).zip(&self.problems) {
            let text = problem.to_string().replace('\n', "\n    ");
            write!(f, "\n\n{number:>2}. {text}")?;
        }
        Ok(())
    }
}

/// Why a bundle did not start.
///
/// Its `Debug` is written for people too, and shows the whole chain: `main` prints that when it returns an error. So
/// both `fn main() -> Result<(), StartError>` and `fn main() -> anyhow::Result<()>` print the report as it should look
/// and end with exit status 1.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Something is wrong with what the bundle was given; nothing was opened, started or written.
    #[error("{0}")]
    Refused(Report),
    /// The store could not be opened; no consumer was started.
    #[error("bundle `{bundle}` cannot start: opening its store ({store}) failed; no consumer was started")]
    Open {
        /// The bundle's name.
        bundle: String,
        /// The store, as it describes itself.
        store: String,
        /// What the store said.
        #[source]
        source: StoreError,
    },
    /// The store was opened, and failed in what a start needs of it; no consumer was started.
    #[error("bundle `{bundle}` cannot start: {doing} failed; no consumer was started")]
    Store {
        /// The bundle's name.
        bundle: String,
        /// What was being done: `registering its consumers`.
        doing: &'static str,
        /// What the store said.
        #[source]
        source: StoreError,
    },
}

impl StartError {
    /// The report, where the bundle was refused before anything was opened.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Refused(report) => Some(report),
            _ => None,
        }
    }
}

impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            write!(f, "\n\ncaused by: {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_in_a_terminal_one_numbered_problem_after_another() {
        let first = Problem::new("executor `a` has capacity 0", "give it at least 1");
        let second = Problem::new("no store was given", "add `.store(..)`").note("a bundle reads its events from it");
        let report = Report::new("shop", vec![first, second]);
        assert_eq!(
            report.to_string(),
            "bundle `shop` cannot start: 2 problems, nothing was opened or started\n\
             \n \
             1. executor `a` has capacity 0\n    \
                give it at least 1\n\
             \n \
             2. no store was given\n    \
                a bundle reads its events from it\n    \
                add `.store(..)`"
        );
        assert_eq!(format!("{:?}", StartError::Refused(report.clone())), report.to_string());
    }

    #[test]
    fn a_failed_opening_prints_what_was_opened_and_the_whole_chain() {
        let source = StoreError::unavailable(std::io::Error::other("disk full"));
        let error = StartError::Open { bundle: "shop".into(), store: "sqlite at shop.db".into(), source };
        let text = format!("{error:?}");
        assert!(text.contains("sqlite at shop.db") && text.ends_with("caused by: disk full"), "{text}");
    }
}
