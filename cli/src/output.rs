//! Writes output files, and texts as cells of CSV.

use std::borrow::Cow;
use std::fs::{self, OpenOptions};
use std::io::{Error, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::CommandError;

pub(crate) fn failed(path: &Path) -> impl Fn(Error) -> CommandError {
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

/// Checks before a run that a file can be replaced. It is not touched.
pub(crate) fn check_replace(path: &Path) -> Result<(), CommandError> {
    match Replaced::of(path) {
        Some(new) => new.create().map(drop).map_err(failed(path)),
        None => check(path),
    }
}

/// Whether a page may replace a regular file: it is empty or another page. Any other file may be an input.
pub(crate) fn is_free_for_page(path: &Path) -> bool {
    const BEGIN: &[u8] = b"<!doctype html>";
    let mut begin = Vec::new();
    let read =
        fs::File::open(path).and_then(|file| file.take(BEGIN.len() as u64).read_to_end(&mut begin));
    read.is_ok() && (begin.is_empty() || begin.eq_ignore_ascii_case(BEGIN))
}

/// Replaces a file at once: a reader sees the old content or all of the new one.
pub(crate) fn replace(path: &Path, content: impl AsRef<[u8]>) -> Result<(), CommandError> {
    let Some(new) = Replaced::of(path) else { return write(path, content) };
    new.replace(content.as_ref()).map_err(failed(path))
}

/// A file beside the one that it replaces, which is removed unless it has taken its place.
struct Replaced {
    path: PathBuf,
    beside: PathBuf,
}

impl Replaced {
    /// `None` for anything but a regular file, such as a pipe. A link stays: the file that it leads to is replaced.
    fn of(path: &Path) -> Option<Replaced> {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if path.exists() && !path.is_file() {
            return None;
        }
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name()?);
        name.push(format!(".{}.tmp", std::process::id()));
        let beside = path.with_file_name(name);
        Some(Replaced { path, beside })
    }

    fn create(&self) -> Result<fs::File, Error> {
        OpenOptions::new().write(true).create_new(true).open(&self.beside)
    }

    fn replace(self, content: &[u8]) -> Result<(), Error> {
        let mut file = self.create()?;
        if let Ok(old) = fs::metadata(&self.path) {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&self.beside, &self.path)
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        // It does not exist if it has taken its place, or could not be created.
        let _ = fs::remove_file(&self.beside);
    }
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
    fn files_are_replaced_whole() {
        let folder = std::env::temp_dir().join(format!("portolan-output-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("page.html");
        check_replace(&file).expect("writable");
        assert!(!file.exists(), "a check leaves no empty file");
        for content in ["one", "two"] {
            replace(&file, content).expect("written");
            assert_eq!(fs::read_to_string(&file).expect("readable"), content);
        }
        let entries = fs::read_dir(&folder).expect("a folder").count();
        assert_eq!(entries, 1, "nothing is left beside it");
        let error = replace(&folder.join("none/page.html"), "").expect_err("no folder");
        assert!(error.text().contains("none/page.html: "), "{}", error.text());
        fs::remove_dir_all(folder).expect("removed");
    }

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
