//! Reads whole files, gzipped or not.

use std::path::Path;

use crate::error::Failure;
use crate::files;

/// The content of a file; gzip is detected by its magic bytes.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let bytes =
        std::fs::read(file).map_err(|error| Failure::Open { file: file.to_owned(), error })?;
    files::content(bytes).map_err(|wrong| Failure::wrong(file, wrong))
}
