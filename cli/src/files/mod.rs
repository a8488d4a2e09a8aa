//! What a file holds, from its bytes alone: no paths and no printing, so that
//! the fuzzer reaches it too.

pub(crate) mod openb;
mod unique;

use std::io::Read;

/// What is wrong with a file, on which line where there is one.
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

/// More than any cluster's dump: a small stream may hold a thousand times its
/// own length.
const MOST: u64 = 4 << 30;

/// The content of a file; gzip is recognised by its first bytes.
pub(crate) fn content(bytes: Vec<u8>) -> Result<Vec<u8>, Wrong> {
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = Vec::new();
        let mut stream = flate2::read::MultiGzDecoder::new(&*bytes).take(MOST + 1);
        stream.read_to_end(&mut text).map_err(|error| {
            Wrong::whole(format!("the gzip stream is broken ({error}): fetch the file again"))
        })?;
        if text.len() as u64 > MOST {
            return Err(Wrong::whole("the gzip stream holds more than 4 GiB: unpack the file"));
        }
        text
    } else {
        bytes
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Wrong::whole("the file is empty: give one with content"));
    }
    Ok(bytes)
}
