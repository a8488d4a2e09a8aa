//! Writes output files, and texts as cells of CSV.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::path::Path;

use crate::error::CommandError;

fn failed(path: &Path) -> impl Fn(std::io::Error) -> CommandError {
    move |error| CommandError::Write { file: path.to_owned(), error }
}

/// Checks before a run that a file can be written. Its content does not change.
pub(crate) fn check(path: &Path) -> Result<(), CommandError> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    file.map(drop).map_err(failed(path))
}

/// Writes a file, replacing its content.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), CommandError> {
    std::fs::write(path, content).map_err(failed(path))
}

/// A text as a cell of CSV. A spreadsheet evaluates a cell that begins with one of these characters as a formula, and a
/// name from an input must not be one: an apostrophe marks it as text (OWASP, "CSV Injection").
pub(crate) fn cell(text: &str) -> Cow<'_, str> {
    match text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_cells_of_text() {
        for formula in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"] {
            assert_eq!(cell(formula), format!("'{formula}"));
        }
        for text in ["", "a=b", "openb-pod-0001", "'=1", "1-2"] {
            assert_eq!(cell(text), text);
        }
    }
}
