//! Decompresses gzip and zstd, recognized by their magic bytes, and names the containers that are not read.

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

use super::Wrong;

/// Largest decompressed size, above any cluster's dump: a compressed stream can expand to a
/// thousand times its length.
pub(super) const MOST: u64 = 4 << 30;

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

/// The decompressed content, at most `most` bytes.
pub(super) fn unpack(bytes: Vec<u8>, most: u64) -> Result<Vec<u8>, Wrong> {
    let bytes = if bytes.starts_with(GZIP) {
        gzip(&bytes, most)?
    } else if bytes.starts_with(ZSTD) || is_skippable(&bytes) {
        zstd(&bytes, most)?
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

fn gzip(bytes: &[u8], most: u64) -> Result<Vec<u8>, Wrong> {
    let mut text = Vec::new();
    let mut stream = flate2::read::MultiGzDecoder::new(bytes).take(most + 1);
    stream.read_to_end(&mut text).map_err(|error| broken("gzip", &error.to_string()))?;
    limited("gzip", text, most)
}

/// Decompresses all frames, as `zstd -d` does.
fn zstd(mut bytes: &[u8], most: u64) -> Result<Vec<u8>, Wrong> {
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
        let left = (most + 1).saturating_sub(text.len() as u64);
        let read = frame.by_ref().take(left).read_to_end(&mut text);
        read.map_err(|error| broken("zstd", &error.to_string()))?;
        text = limited("zstd", text, most)?;
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

fn limited(format: &str, text: Vec<u8>, most: u64) -> Result<Vec<u8>, Wrong> {
    if text.len() as u64 > most {
        return Err(Wrong::whole(format!(
            "the {format} data expands to more than {} GiB: decompress the file first",
            most >> 30
        )));
    }
    Ok(text)
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
    fn a_cut_frame_is_refused() {
        let bytes = compressed(&[b'x'; 5000]);
        for cut in [bytes.len() - 1, bytes.len() / 2, 5] {
            assert!(unpack(bytes[..cut].to_vec(), 1 << 20).is_err(), "{cut}");
        }
    }
}
