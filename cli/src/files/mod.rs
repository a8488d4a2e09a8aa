//! Parses file content from bytes alone, without paths or printing, so that the fuzzer can
//! run it too.

pub(crate) mod openb;
mod unique;

use std::io::Read;

/// Invalid content of a file, with the line if it is known.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) line: Option<u64>,
    pub(crate) what: String,
}

impl Wrong {
    pub(crate) fn at(line: u64, what: impl Into<String>) -> Wrong {
        Wrong { line: Some(line), what: what.into() }
    }

    fn whole(what: impl Into<String>) -> Wrong {
        Wrong { line: None, what: what.into() }
    }
}

/// Largest decompressed size, above any cluster's dump: a gzip stream can expand to a
/// thousand times its length.
const MOST: u64 = 4 << 30;

/// The content of a file; gzip is detected by its magic bytes.
pub(crate) fn content(bytes: Vec<u8>) -> Result<Vec<u8>, Wrong> {
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = Vec::new();
        let mut stream = flate2::read::MultiGzDecoder::new(&*bytes).take(MOST + 1);
        stream.read_to_end(&mut text).map_err(|error| {
            Wrong::whole(format!("invalid gzip data ({error}): download the file again"))
        })?;
        if text.len() as u64 > MOST {
            return Err(Wrong::whole(
                "the gzip data expands to more than 4 GiB: decompress the file first",
            ));
        }
        text
    } else {
        bytes
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Wrong::whole("the file is empty"));
    }
    Ok(bytes)
}
