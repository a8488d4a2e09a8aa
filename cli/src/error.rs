//! The errors that end the program: each names the file and line if known, and the remedy.

use std::path::{Path, PathBuf};

use crate::files::Wrong;

/// An error that ends the program with exit status 2.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A file that cannot be read.
    #[error("{}: {error}: check the path and its permissions", file.display())]
    Open { file: PathBuf, error: std::io::Error },
    /// A file that cannot be written.
    #[error("{}: {error}: check that the folder exists and is writable", file.display())]
    Write { file: PathBuf, error: std::io::Error },
    /// Invalid content at a line of a file.
    #[error("{}:{line}: {what}", file.display())]
    Line { file: PathBuf, line: u64, what: String },
    /// Invalid content of a file as a whole.
    #[error("{}: {what}", file.display())]
    File { file: PathBuf, what: String },
    /// Invalid or conflicting arguments.
    #[error("{0}")]
    Usage(String),
    /// A cluster that cannot be reached, or a scheduler that cannot run.
    #[error("{0}")]
    Live(String),
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
    /// A thread that panicked.
    #[error("{0} panicked: report the message above as a bug")]
    Panicked(&'static str),
}

impl Failure {
    /// Adds the file name to invalid content.
    pub(crate) fn wrong(file: &Path, Wrong { line, what }: Wrong) -> Failure {
        let file = file.to_owned();
        match line {
            Some(line) => Failure::Line { file, line, what },
            None => Failure::File { file, what },
        }
    }
}
