//! Files that a run leaves behind.

use std::fs::OpenOptions;
use std::path::Path;

use crate::error::Failure;

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::Write { file: path.to_owned(), error }
}

/// Whether a file can be written: to be asked before a run, so that none is in vain. What
/// the file holds stays in it.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    file.map(drop).map_err(failed(path))
}

/// Writes a file, in place of what it held.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(failed(path))
}
