//! Parses file content from bytes alone, without paths or printing, so that the fuzzer can
//! run it too.

use std::io::{self, Read};

pub(crate) mod openb;
mod packed;
mod unique;

/// Invalid content of a file, with the line if it is known.
#[derive(Debug)]
pub struct Wrong {
    pub line: Option<u64>,
    pub what: String,
}

impl Wrong {
    pub fn at(line: u64, what: impl Into<String>) -> Wrong {
        Wrong { line: Some(line), what: what.into() }
    }

    fn whole(what: impl Into<String>) -> Wrong {
        Wrong { line: None, what: what.into() }
    }
}

/// The largest size of a file, above any cluster's dump, and of the data of all compressed files of an input.
pub(crate) const MOST: u64 = 4 << 30;

/// Reads to the end, but at most one byte beyond the limit. The memory is reserved fallibly and with respect to the
/// limit: an endless or compressed input must not exhaust it.
pub(crate) fn read_up_to(most: u64, mut from: impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    let end = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1);
    loop {
        if bytes.len() == bytes.capacity() {
            // One more, so that powers of two are no capacities: the last byte would need a copy of its own.
            let more = bytes.len().max(1 << 16) + 1;
            bytes.try_reserve_exact(more.min(end.saturating_sub(bytes.len())))?;
        }
        let room = bytes.capacity().min(end).saturating_sub(bytes.len());
        if from.by_ref().take(room as u64).read_to_end(bytes)? < room || bytes.len() >= end {
            return Ok(());
        }
    }
}

/// The content of a file; gzip and zstd are detected by their magic bytes. The compressed files of an input may still
/// expand to `left` bytes, at first [`MOST`].
pub(crate) fn content(left: &mut u64, bytes: Vec<u8>) -> Result<Vec<u8>, Wrong> {
    let bytes = packed::unpack(bytes, left)?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Wrong::whole("the file is empty"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_is_read_up_to_the_limit() {
        for most in [0, 1, 70_000, 1 << 20] {
            let mut bytes = Vec::new();
            read_up_to(most, io::repeat(b' '), &mut bytes).expect("enough memory");
            assert_eq!(bytes.len() as u64, most + 1);
            assert!(bytes.capacity() as u64 <= most + 1 + (1 << 16), "{}", bytes.capacity());
        }
        let mut bytes = Vec::new();
        read_up_to(5, &b"12345"[..], &mut bytes).expect("enough memory");
        assert_eq!(bytes, b"12345");
    }
}
