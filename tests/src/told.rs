//! What a test's thread says through `tracing`.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::{MakeWriter, format::FmtSpan};

/// Everything said on this thread while it lives, spans included, one line each.
#[derive(Debug)]
pub struct Told {
    text: Text,
    _guard: DefaultGuard,
}

impl Told {
    /// Listens from now on.
    #[must_use]
    pub fn listen() -> Self {
        let text = Text::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(text.clone())
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(FmtSpan::NEW)
            .with_ansi(false)
            .without_time()
            .finish();
        Self { text, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// The lines so far that hold all of these parts.
    #[must_use]
    pub fn lines(&self, parts: &[&str]) -> Vec<String> {
        let text = self.text.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&text);
        text.lines().filter(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned).collect()
    }

    /// Asserts that one line so far holds all of these parts, and answers the first.
    ///
    /// # Panics
    /// If none does; the message lists everything said.
    #[track_caller]
    #[must_use]
    pub fn said(&self, parts: &[&str]) -> String {
        let mut lines = self.lines(parts);
        assert!(!lines.is_empty(), "no line holds all of {parts:?}:\n{}", self.lines(&[]).join("\n"));
        lines.swap_remove(0)
    }
}

#[derive(Clone, Debug, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Text {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
