//! What handlers leave behind: a line when one begins, a line when it ends, each one write to a file opened for
//! appending, so that `kill -9` takes none of it back.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    str::FromStr,
};

use anyhow::Context;

/// One line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Effect {
    pub(crate) process: u32,
    /// Under which taking of its claim.
    pub(crate) epoch: u64,
    /// Which event of the log.
    pub(crate) number: usize,
    pub(crate) key: String,
    pub(crate) sequence: u64,
    pub(crate) attempt: u32,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum What {
    /// A handler began; so many run now.
    Began { running: usize },
    /// It returned `Ok`, when so many writes of the checkpoint had been asked for.
    Handled { writes: usize },
    /// It returned an error.
    Failed,
    /// It was dropped before it returned.
    CutOff,
}

/// Where handlers write their effects.
#[derive(Debug)]
pub(crate) struct Effects(File);

impl Effects {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }

    pub(crate) fn write(&self, effect: &Effect) -> anyhow::Result<()> {
        let Effect { process, epoch, number, key, sequence, attempt, what } = effect;
        let (word, count) = match what {
            What::Began { running } => ("began", *running),
            What::Handled { writes } => ("handled", *writes),
            What::Failed => ("failed", 0),
            What::CutOff => ("cut-off", 0),
        };
        let line = format!("{process} {epoch} {number} {key} {sequence} {attempt} {word} {count}\n");
        (&self.0).write_all(line.as_bytes()).context("an effect could not be written")
    }
}

/// Everything that was written, in that order.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Effect>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| line.parse().with_context(|| format!("effect `{line}`"))).collect()
}

impl FromStr for Effect {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let words: Vec<_> = line.split(' ').collect();
        let [process, epoch, number, key, sequence, attempt, what, count] = words[..] else {
            anyhow::bail!("not eight words");
        };
        let count = count.parse()?;
        let what = match what {
            "began" => What::Began { running: count },
            "handled" => What::Handled { writes: count },
            "failed" => What::Failed,
            "cut-off" => What::CutOff,
            _ => anyhow::bail!("not an effect"),
        };
        Ok(Self {
            process: process.parse()?,
            epoch: epoch.parse()?,
            number: number.parse()?,
            key: key.to_owned(),
            sequence: sequence.parse()?,
            attempt: attempt.parse()?,
            what,
        })
    }
}
