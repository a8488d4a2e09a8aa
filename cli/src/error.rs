//! The errors that end the program: each names the file and line if known, and the remedy.

use std::path::{Path, PathBuf};

use crate::files::Wrong;
use crate::text::{shortened, without_long_values};

/// An error that ends the program with exit status 2.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// A file that cannot be read.
    #[error("{}: {error}: check the path and its permissions", name(file))]
    Open { file: PathBuf, error: std::io::Error },
    /// A file that cannot be written.
    #[error("{}: {error}: check that the folder exists and is writable", name(file))]
    Write { file: PathBuf, error: std::io::Error },
    /// Invalid content at a line of a file.
    #[error("{}:{line}: {what}", name(file))]
    Line { file: PathBuf, line: u64, what: String },
    /// Invalid content of a file as a whole.
    #[error("{}: {what}", name(file))]
    File { file: PathBuf, what: String },
    /// Invalid or conflicting arguments.
    #[error("{0}")]
    Usage(String),
    /// A cluster that cannot be reached, or a scheduler that cannot run.
    #[error("{0}")]
    Live(String),
    /// An engine that could not start, or that has stopped.
    #[error("the engine failed: {0}")]
    Engine(String),
    /// An object that the engine refused.
    #[error("{object} was refused: {error}")]
    Refused { object: String, error: portolan::model::EventError },
    /// An error while printing the result.
    #[error("cannot print the result: {0}")]
    Output(std::io::Error),
    /// A thread pool that could not be started.
    #[error("cannot start threads: {0}: try fewer threads")]
    Threads(String),
    /// A copy of this program that could not be started or failed.
    #[error("a copy of this program {0}")]
    Process(String),
    /// A simulation whose answer nobody waits for any longer.
    #[error("the question was withdrawn")]
    Withdrawn,
    /// A thread that panicked.
    #[error("{0} panicked: report the message above as a bug")]
    Panicked(&'static str),
}

/// How much of a file messages may quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quotes {
    /// Any value.
    All,
    /// Values of at most 32 characters: the person who passed a directory may not know what a link in it refers to.
    Short,
}

impl Quotes {
    /// The message as it may be printed.
    pub(crate) fn of(self, message: String) -> String {
        match self {
            Quotes::All => message,
            Quotes::Short => without_long_values(&message),
        }
    }
}

/// The largest number of characters of an error.
const MOST: usize = 280;

/// The name of a file in an error: a long path without its middle, standard input by name.
fn name(file: &Path) -> String {
    match crate::input::is_standard_input(file) {
        true => "standard input".to_owned(),
        false => shortened(&file.display().to_string(), MOST / 2),
    }
}

impl CommandError {
    /// The error as it is printed, which quotes long input in part.
    pub(crate) fn text(&self) -> String {
        shortened(&self.to_string(), MOST)
    }

    /// The error of an invalid file with the quotes that are allowed.
    pub(crate) fn quoting(mut self, quotes: Quotes) -> CommandError {
        if let CommandError::Line { what, .. } | CommandError::File { what, .. } = &mut self {
            *what = quotes.of(std::mem::take(what));
        }
        self
    }

    /// Adds the file name to invalid content.
    pub fn wrong(file: &Path, Wrong { line, what }: Wrong) -> CommandError {
        let file = file.to_owned();
        match line {
            Some(line) => CommandError::Line { file, line, what },
            None => CommandError::File { file, what },
        }
    }
}
