//! Parses file content from bytes alone, without paths or printing, so that the fuzzer can
//! run it too.

pub(crate) mod openb;
mod packed;
mod unique;

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

/// The content of a file; gzip and zstd are detected by their magic bytes.
pub(crate) fn content(bytes: Vec<u8>) -> Result<Vec<u8>, Wrong> {
    let bytes = packed::unpack(bytes, packed::MOST)?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Wrong::whole("the file is empty"));
    }
    Ok(bytes)
}
