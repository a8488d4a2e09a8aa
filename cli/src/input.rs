//! Files, gzipped or not, read whole before anything of them is used.

use std::io::Read;
use std::path::Path;

use crate::error::Failure;

/// The content of a file; gzip is recognised by its first bytes.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let bytes =
        std::fs::read(file).map_err(|error| Failure::Open { file: file.to_owned(), error })?;
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = Vec::new();
        flate2::read::MultiGzDecoder::new(&*bytes).read_to_end(&mut text).map_err(|error| {
            let what = format!("the gzip stream is broken ({error}): fetch the file again");
            Failure::File { file: file.to_owned(), what }
        })?;
        text
    } else {
        bytes
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        let what = "the file is empty: give one with content".to_owned();
        return Err(Failure::File { file: file.to_owned(), what });
    }
    Ok(bytes)
}
