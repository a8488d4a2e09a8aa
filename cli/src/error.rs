//! What can go wrong, with the file, the line and the way out.

use std::path::{Path, PathBuf};

use crate::files::Wrong;

/// Why the program stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A file that cannot be read.
    #[error("{}: {error}: check the path and whether it can be read", file.display())]
    Open { file: PathBuf, error: std::io::Error },
    /// A file that cannot be written.
    #[error("{}: {error}: check that its folder is there and can be written", file.display())]
    Write { file: PathBuf, error: std::io::Error },
    /// A file that is not what it should be.
    #[error("{}:{line}: {what}", file.display())]
    Line { file: PathBuf, line: u64, what: String },
    /// A file that is not what it should be, as a whole.
    #[error("{}: {what}", file.display())]
    File { file: PathBuf, what: String },
    /// Arguments that do not go together.
    #[error("{0}")]
    Usage(String),
    /// What was read, and the engine refused.
    #[error("{object} was refused: {error}")]
    Refused { object: String, error: portolan::model::EventError },
    /// A result that could not be printed.
    #[error("the result could not be printed: {0}")]
    Output(std::io::Error),
    /// A thread that could not be started.
    #[error("{0}: try fewer --threads")]
    Threads(String),
}

impl Failure {
    /// A file with what is wrong in it.
    pub(crate) fn wrong(file: &Path, Wrong { line, what }: Wrong) -> Failure {
        let file = file.to_owned();
        match line {
            Some(line) => Failure::Line { file, line, what },
            None => Failure::File { file, what },
        }
    }
}
