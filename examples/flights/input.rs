//! The input: lines of JSON, each turned into an event, or into an error that says which line and why.

use std::{
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use anyhow::{Context as _, bail};
use evento_core::{Event, EventId, NewEvent};
use flate2::read::MultiGzDecoder;
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::event::{FlightArrived, FlightCancelled, FlightDeparted, OfFlight};

const WEEK: &[u8] = include_bytes!("../data/flights-2013-week1.ndjson.gz");
/// No event is near this long: a file without line ends is refused before it fills the memory.
const MAX_LINE: u64 = 1024 * 1024;

/// Something is wrong with the input: exit status 2.
#[derive(Debug)]
pub(crate) struct InputError {
    pub(crate) place: String,
    pub(crate) cause: anyhow::Error,
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:#}", self.place, self.cause)
    }
}

impl std::error::Error for InputError {}

/// An event, and the line it came from.
pub(crate) struct Numbered {
    pub(crate) line: u64,
    pub(crate) event: NewEvent,
}

/// The lines of a file. The first error is the last item: what comes after it would be out of order.
pub(crate) struct Input {
    name: String,
    reader: Box<dyn BufRead + Send>,
    line: u64,
    failed: bool,
}

impl Input {
    /// Opens `path`, or the built-in week; `bar` shows how much has been read.
    pub(crate) fn open(path: Option<&Path>, bar: &ProgressBar) -> Result<Self, InputError> {
        let Some(path) = path else {
            bar.set_length(WEEK.len() as u64);
            return Ok(Self::new("the built-in week".to_owned(), true, bar.wrap_read(WEEK)));
        };
        let name = path.display().to_string();
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = match opened {
            Ok((metadata, _)) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            other => other,
        }
        .context("cannot be read; name a file of events with `--input`, `.ndjson` or `.ndjson.gz`")
        .map_err(|cause| InputError { place: name.clone(), cause })?;
        bar.set_length(metadata.len());
        let compressed = path.extension().is_some_and(|extension| extension == "gz");
        Ok(Self::new(name, compressed, bar.wrap_read(file)))
    }

    fn new(name: String, compressed: bool, read: impl Read + Send + 'static) -> Self {
        let reader: Box<dyn BufRead + Send> = match compressed {
            true => Box::new(BufReader::new(MultiGzDecoder::new(BufReader::new(read)))),
            false => Box::new(BufReader::new(read)),
        };
        Self { name, reader, line: 0, failed: false }
    }

    /// The file's name, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The next line's event; `None` at the end.
    fn read(&mut self) -> anyhow::Result<Option<NewEvent>> {
        let mut line = Vec::with_capacity(256);
        let read = self.reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        match read.context("the file cannot be read on; is it damaged, or not what its name says?")? {
            0 => Ok(None),
            _ if line.len() as u64 == MAX_LINE => bail!("the line is over {MAX_LINE} bytes long"),
            // Without its end a line that breaks off is seen to.
            _ => parse(line.trim_ascii_end()).map(Some),
        }
    }
}

impl Iterator for Input {
    type Item = Result<Numbered, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        self.line += 1;
        let read = self.read().transpose()?;
        self.failed = read.is_err();
        Some(match read {
            Ok(event) => Ok(Numbered { line: self.line, event }),
            Err(cause) => Err(InputError { place: format!("{}:{}", self.name, self.line), cause }),
        })
    }
}

#[derive(Deserialize)]
struct Line {
    r#type: String,
    aircraft: Value,
    at: Value,
    data: Map<String, Value>,
}

fn parse(line: &[u8]) -> anyhow::Result<NewEvent> {
    anyhow::ensure!(!line.trim_ascii().is_empty(), "the line is empty: take it out");
    let Line { r#type, aircraft, at, mut data } = serde_json::from_slice(line).map_err(without_line)?;
    data.insert("aircraft".to_owned(), aircraft);
    data.insert("at".to_owned(), at);
    match r#type.as_str() {
        FlightDeparted::NAME => new_event::<FlightDeparted>(data),
        FlightArrived::NAME => new_event::<FlightArrived>(data),
        FlightCancelled::NAME => new_event::<FlightCancelled>(data),
        unknown => bail!(
            "unknown event type `{unknown}`; known are `{}`, `{}` and `{}`",
            FlightDeparted::NAME,
            FlightArrived::NAME,
            FlightCancelled::NAME
        ),
    }
}

fn new_event<E: OfFlight>(data: Map<String, Value>) -> anyhow::Result<NewEvent> {
    let event: E = serde_json::from_value(Value::Object(data))?;
    // Of the event's own making, so that a second run appends nothing.
    let id = format!("{}/{}/{}", E::NAME, event.leg().flight, event.leg().scheduled);
    let event = NewEvent::of(&event)?.with_id(EventId::new(id)?);
    event.validate()?;
    Ok(event)
}

/// To serde each line is the first: only the column is of use.
fn without_line(error: serde_json::Error) -> anyhow::Error {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = error.to_string();
    anyhow::anyhow!("{} (column {})", text.strip_suffix(&place).unwrap_or(&text), error.column())
}
