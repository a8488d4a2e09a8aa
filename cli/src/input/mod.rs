//! Reads the inputs that arguments name: files, directories and standard input, compressed or not.
//!
//! A file that is named is read whatever its name is. In a directory only JSON and YAML files are read, because dumps
//! also contain logs and other files; the others are counted in a note.

mod directory;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use portolan_k8s::Reader;

use crate::cluster::not_read;
use crate::error::Failure;
use crate::files;
use crate::text::count;

/// The argument that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Whether the argument stands for standard input.
pub(crate) fn is_standard_input(file: &Path) -> bool {
    file.as_os_str() == STANDARD_INPUT
}

/// The content of a file or of standard input (`-`); gzip and zstd are detected by their magic bytes.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    files::content(bytes(file)?).map_err(|wrong| Failure::wrong(file, wrong))
}

/// The bytes of a file or of standard input, still compressed.
fn bytes(file: &Path) -> Result<Vec<u8>, Failure> {
    let open = |error| Failure::Open { file: file.to_owned(), error };
    if is_standard_input(file) {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Err(Failure::Usage(
                "standard input (-) is empty after its first use: pass - for one argument only"
                    .to_owned(),
            ));
        }
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(open)?;
        return Ok(bytes);
    }
    std::fs::read(file).map_err(open)
}

/// Reads objects from files, directories and standard input; `seen` gets the content of each file. Returns notes about
/// what is ignored.
pub(crate) fn objects(
    paths: &[PathBuf],
    reader: &mut Reader,
    mut seen: impl FnMut(&Path, &[u8]),
) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    for path in paths {
        if path.is_dir() {
            directory(path, reader, &mut seen, &mut notes)?;
        } else {
            let bytes = read(path)?;
            reader.read(&bytes).map_err(|error| not_read(path, &error))?;
            seen(path, &bytes);
        }
    }
    Ok(notes)
}

/// Reads the files of a directory.
fn directory(
    path: &Path,
    reader: &mut Reader,
    seen: &mut impl FnMut(&Path, &[u8]),
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    let listing = directory::list(path)?;
    let before = reader.mark();
    let (mut used, mut foreign) = (0, Vec::new());
    for file in &listing.files {
        let stored = bytes(file)?;
        if stored.iter().all(u8::is_ascii_whitespace) {
            foreign.push(file);
            continue;
        }
        let bytes = files::content(stored).map_err(|wrong| Failure::wrong(file, wrong))?;
        match reader.read(&bytes) {
            Ok(()) => {
                used += 1;
                seen(file, &bytes);
            }
            Err(error) if error.is_foreign() => foreign.push(file),
            Err(error) => return Err(not_read(file, &error)),
        }
    }
    if used == 0 {
        let what = "no Kubernetes objects in the .json, .yaml and .yml files (.gz, .zst) of this directory: pass the \
                    directory of a dump";
        return Err(Failure::File { file: path.to_owned(), what: what.to_owned() });
    }
    let copies = reader.remove_copies(&before);
    if copies > 0 {
        notes.push(format!("{}: ignored {} of objects", path.display(), copies_of(copies)));
    }
    notes.extend(note(path, used, &listing, &foreign));
    Ok(())
}

fn copies_of(number: usize) -> String {
    match number {
        1 => "1 further copy".to_owned(),
        _ => format!("{number} further copies"),
    }
}

/// A note about the files of a directory that are ignored.
fn note(
    path: &Path,
    used: usize,
    listing: &directory::Listing,
    foreign: &[&PathBuf],
) -> Option<String> {
    let mut ignored = Vec::new();
    if listing.others > 0 {
        ignored.push(format!("{} that are not JSON or YAML", count(listing.others, "file")));
    }
    if let Some(first) = foreign.first() {
        let first = first.strip_prefix(path).unwrap_or(first);
        ignored.push(format!(
            "{} without Kubernetes objects (the first: {})",
            count(foreign.len(), "file"),
            first.display()
        ));
    }
    if listing.hidden > 0 {
        ignored.push(count(listing.hidden, "hidden name"));
    }
    if listing.links > 0 {
        ignored.push(count(listing.links, "directory link"));
    }
    (!ignored.is_empty()).then(|| {
        format!("{}: read {}, ignored {}", path.display(), count(used, "file"), ignored.join(", "))
    })
}
