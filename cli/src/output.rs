//! Writes output files.

use std::fs::OpenOptions;
use std::path::Path;

use crate::error::Failure;

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::Write { file: path.to_owned(), error }
}

/// Checks before a run that a file can be written. Its content does not change.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    file.map(drop).map_err(failed(path))
}

/// Writes a file, replacing its content.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    std::fs::write(path, content).map_err(failed(path))
}
