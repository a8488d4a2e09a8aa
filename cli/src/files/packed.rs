//! Decompresses gzip and zstd, recognized by their magic bytes, and names the containers that are not read.

use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

use super::{MOST, Wrong, read_up_to};

/// How many times its size compressed data may expand to, if that is more than [`FREE`]. Dumps of clusters with many
/// equal pods expand about a hundred times, data that is meant to exhaust memory ten thousand times.
const RATIO: u64 = 200;
/// The size up to which data may expand by any factor.
const FREE: u64 = 64 << 20;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Other magic bytes, each with an error that names the format and the remedy.
const OTHERS: [(usize, &[u8], &str); 6] = [
    (0, b"PK\x03\x04", "the file is a zip archive: extract it and pass the directory"),
    (0, b"BZh", "the file is compressed with bzip2: decompress it, or use gzip or zstd"),
    (0, b"\xfd7zXZ", "the file is compressed with xz: decompress it, or use gzip or zstd"),
    (0, b"\x04\x22\x4d\x18", "the file is compressed with lz4: decompress it, or use gzip or zstd"),
    (0, b"k8s\0", "the file is Kubernetes protobuf: write it with `kubectl get -o json`"),
    (257, b"ustar", "the file is a tar archive: extract it and pass the directory"),
];

/// The decompressed content, at most `left` bytes, which it reduces by them.
pub(super) fn unpack(bytes: Vec<u8>, left: &mut u64) -> Result<Vec<u8>, Wrong> {
    let limit = Limit { size: bytes.len() as u64, left: *left };
    let is_gzip = bytes.starts_with(GZIP);
    let bytes = if is_gzip || bytes.starts_with(ZSTD) || is_skippable(&bytes) {
        let text = if is_gzip { gzip(&bytes, limit)? } else { zstd(&bytes, limit)? };
        *left = left.saturating_sub(text.len() as u64);
        text
    } else {
        bytes
    };
    let is = |&&(at, magic, _): &&(usize, &[u8], _)| {
        bytes.get(at..).is_some_and(|bytes| bytes.starts_with(magic))
    };
    match OTHERS.iter().find(is) {
        Some((_, _, what)) => Err(Wrong::whole(*what)),
        None => Ok(bytes),
    }
}

/// The limits of the data of one file.
#[derive(Clone, Copy)]
struct Limit {
    /// The compressed size.
    size: u64,
    /// The size that the compressed files of the input may still expand to.
    left: u64,
}

impl Limit {
    /// The limit by the ratio.
    fn expanded(self) -> u64 {
        self.size.saturating_mul(RATIO).max(FREE)
    }

    /// Appends the data of a stream.
    fn read(
        self,
        format: &str,
        stream: impl std::io::Read,
        text: &mut Vec<u8>,
    ) -> Result<(), Wrong> {
        let most = self.left.min(self.expanded());
        read_up_to(most, stream, text).map_err(|error| match error.kind() {
            std::io::ErrorKind::OutOfMemory => {
                Wrong::whole(format!("not enough memory for the {format} data: split the file"))
            }
            _ => broken(format, &error.to_string()),
        })?;
        if text.len() as u64 <= most {
            return Ok(());
        }
        Err(Wrong::whole(match most == self.left {
            true => format!(
                "the compressed input expands to more than {} GiB: decompress the file first",
                MOST >> 30
            ),
            false => format!(
                "the {format} data expands to more than {RATIO} times its size: decompress the file first if you \
                 trust it"
            ),
        }))
    }
}

fn gzip(bytes: &[u8], limit: Limit) -> Result<Vec<u8>, Wrong> {
    let mut text = Vec::new();
    limit.read("gzip", flate2::read::MultiGzDecoder::new(bytes), &mut text)?;
    Ok(text)
}

/// Decompresses all frames, as `zstd -d` does.
fn zstd(mut bytes: &[u8], limit: Limit) -> Result<Vec<u8>, Wrong> {
    let mut text = Vec::new();
    while !bytes.is_empty() {
        let mut frame = match StreamingDecoder::new(&mut bytes) {
            Ok(frame) => frame,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let rest = usize::try_from(length).ok().and_then(|length| bytes.get(length..));
                bytes = rest.ok_or_else(|| broken("zstd", "a frame is cut off"))?;
                continue;
            }
            Err(error) => return Err(broken("zstd", &error.to_string())),
        };
        limit.read("zstd", &mut frame, &mut text)?;
        let stored = frame.decoder.get_checksum_from_data();
        if stored.is_some() && stored != frame.decoder.get_calculated_checksum() {
            return Err(broken("zstd", "the checksum differs"));
        }
    }
    Ok(text)
}

/// Whether the bytes start with a frame without data, as those of parallel compressors do.
fn is_skippable(bytes: &[u8]) -> bool {
    matches!(bytes, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

fn broken(format: &str, what: &str) -> Wrong {
    let what: String = what.chars().take(100).collect();
    Wrong::whole(format!("invalid {format} data ({what}): download the file again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compressed(text: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
    }

    /// The content of bytes that may expand to `most` bytes.
    fn unpack(bytes: Vec<u8>, mut most: u64) -> Result<Vec<u8>, Wrong> {
        super::unpack(bytes, &mut most)
    }

    #[test]
    fn all_frames_of_zstd_are_read_and_skippable_ones_skipped() {
        let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let bytes = [&skipped[..], &compressed(b"a"), &skipped, &compressed(b"b")].concat();
        assert_eq!(unpack(bytes, 10).map_err(|wrong| wrong.what), Ok(b"ab".to_vec()));
    }

    #[test]
    fn expansion_is_limited_over_all_frames() {
        let bytes = [compressed(b"12345"), compressed(b"12345")].concat();
        assert!(unpack(bytes.clone(), 10).is_ok());
        assert!(unpack(bytes, 9).is_err_and(|wrong| wrong.what.contains("more than")));
    }

    #[test]
    fn expansion_is_limited_over_all_files() {
        let mut left = 9;
        assert!(super::unpack(compressed(b"12345"), &mut left).is_ok());
        assert_eq!(left, 4);
        assert!(super::unpack(b"plain text".to_vec(), &mut left).is_ok());
        assert!(super::unpack(compressed(b"12345"), &mut left).is_err());
    }

    #[test]
    fn data_may_expand_by_any_factor_up_to_a_size_only() {
        let text = vec![b' '; (FREE + 1) as usize];
        let fits = compressed(&text[1..]);
        assert!((fits.len() as u64) < FREE / RATIO, "{}", fits.len());
        assert!(unpack(fits, MOST).is_ok());
        // The same data with enough bytes that expand to none.
        let size = u32::try_from(FREE / RATIO).expect("a small number");
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18], &size.to_le_bytes()[..], &vec![0; size as usize]];
        assert!(unpack([&skipped.concat()[..], &compressed(&text)].concat(), MOST).is_ok());
        let error = unpack(compressed(&text), MOST).expect_err("too much");
        assert!(error.what.contains("200 times its size"), "{}", error.what);
    }

    #[test]
    fn a_cut_frame_is_refused() {
        let bytes = compressed(&[b'x'; 5000]);
        for cut in [bytes.len() - 1, bytes.len() / 2, 5] {
            assert!(unpack(bytes[..cut].to_vec(), 1 << 20).is_err(), "{cut}");
        }
    }
}
