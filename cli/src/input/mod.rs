//! Reads the inputs that arguments name: files, directories and standard input, compressed or not.
//!
//! A file that is named is read regardless of its extension. In a directory only JSON and YAML files are read, because
//! dumps also contain logs and other files; the others are counted in a note.

mod directory;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;
use portolan_k8s::Reader;

use crate::cluster::{Strict, not_read_at};
use crate::error::{CommandError, Quotes};
use crate::files;
use crate::intake::Intake;
use crate::terminal::{self, Of};
use crate::text::{count, first_of};

/// The argument for standard input.
const STANDARD_INPUT: &str = "-";

/// Whether the argument means standard input.
pub(crate) fn is_standard_input(file: &Path) -> bool {
    file.as_os_str() == STANDARD_INPUT
}

/// Whether the name of a file ends in .csv, .csv.gz or .csv.zst, as that of openb CSV.
pub(crate) fn is_csv(file: &Path) -> bool {
    let name = file.to_string_lossy();
    let plain = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst"));
    plain.unwrap_or(&name).ends_with(".csv")
}

/// The content of a file or of standard input (`-`); gzip and zstd are detected by their magic bytes.
pub fn read(file: &Path) -> Result<Vec<u8>, CommandError> {
    content(file, &progress(file), &mut { files::MOST })
}

fn content(file: &Path, bar: &ProgressBar, left: &mut u64) -> Result<Vec<u8>, CommandError> {
    let stored = bytes(file, bar)?;
    files::content(left, stored).map_err(|wrong| CommandError::wrong(file, wrong))
}

/// The progress of reading a file, or the files of a directory.
fn progress(path: &Path) -> ProgressBar {
    let length = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    let length = length.map_or(0, |file| file.len());
    terminal::progress(format!("reading {}", path.display()), length, Of::Bytes)
}

/// The bytes of a file or of standard input, still compressed.
fn bytes(file: &Path, bar: &ProgressBar) -> Result<Vec<u8>, CommandError> {
    let open = |error| CommandError::Open { file: file.to_owned(), error };
    if is_standard_input(file) {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Err(CommandError::Usage(
                "standard input (-) is empty after its first use: pass - for one argument only"
                    .to_owned(),
            ));
        }
        return all(file, std::io::stdin().lock(), 0);
    }
    if ["http://", "https://"].iter().any(|scheme| file.to_string_lossy().starts_with(scheme)) {
        let what =
            "addresses are not read: download the file, for example with curl, and pass it or -";
        return Err(CommandError::File { file: file.to_owned(), what: what.to_owned() });
    }
    let opened = std::fs::File::open(file).map_err(open)?;
    let length = opened.metadata().ok().filter(std::fs::Metadata::is_file);
    all(file, bar.wrap_read(opened), length.map_or(0, |file| file.len()))
}

/// Reads to the end of a file of this length, which is 0 if it is not known. The file may be endless, as a device is.
fn all(file: &Path, from: impl Read, length: u64) -> Result<Vec<u8>, CommandError> {
    let most = files::MOST;
    let refuse = |what| CommandError::File { file: file.to_owned(), what };
    let too_large =
        || refuse(format!("larger than {} GiB: split it by kind or namespace", most >> 30));
    if length > most {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // One more byte, so that the end is found without more memory.
    let reserved = bytes.try_reserve_exact(usize::try_from(length + 1).unwrap_or(usize::MAX));
    let read = reserved.map_err(std::io::Error::from);
    match read.and_then(|()| files::read_up_to(most, from, &mut bytes)) {
        Ok(()) if bytes.len() as u64 > most => Err(too_large()),
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::OutOfMemory => {
            Err(refuse("not enough memory: split it by kind or namespace".to_owned()))
        }
        Err(error) => Err(CommandError::Open { file: file.to_owned(), error }),
    }
}

/// Reads objects from files, directories and standard input. Directories get a note about the files that are ignored.
pub(crate) fn objects(
    paths: &[PathBuf],
    strict: Strict,
    reader: &mut Reader,
    intake: &mut Intake,
) -> Result<(), CommandError> {
    let mut left = files::MOST;
    for path in paths {
        if path.is_dir() {
            directory(path, &mut left, strict, reader, intake)?;
        } else {
            // Parsing counts as reading.
            let bar = progress(path);
            let bytes = content(path, &bar, &mut left)?;
            let refuses =
                |what: &str| CommandError::File { file: path.clone(), what: what.to_owned() };
            reader.read(&bytes).map_err(|error| match error.is_foreign() {
                _ if is_csv(path) => refuses(CSV),
                true if is_kustomization(path) => refuses(UNRENDERED),
                _ => not_read_at(path, &bytes, &error),
            })?;
            strict.examine(path, &bytes, Quotes::All, intake)?;
        }
    }
    Ok(())
}

/// The files and lines of the objects of a kind and name. Reads the files again, for an error that names them. Standard
/// input and pipes cannot be read twice.
pub(crate) fn places(
    paths: &[&Path],
    kind: &str,
    namespace: Option<&str>,
    name: &str,
) -> Vec<(PathBuf, u64)> {
    let mut places = Vec::new();
    for path in paths {
        let files = match path.is_dir() {
            true => directory::list(path).map(paths_of).unwrap_or_default(),
            false if path.is_file() && !is_standard_input(path) => vec![path.to_path_buf()],
            false => continue,
        };
        for file in files {
            let Ok(bytes) = read(&file) else { continue };
            let lines = portolan_k8s::lines_of_object(&bytes, kind, namespace, name);
            places.extend(lines.into_iter().map(|line| (file.clone(), line)));
        }
    }
    places
}

/// The files that are read for this path: itself, or those of a directory.
#[cfg(feature = "cluster")]
pub(crate) fn files(path: &Path) -> Result<Vec<PathBuf>, CommandError> {
    match path.is_dir() {
        true => directory::list(path).map(paths_of),
        false => Ok(vec![path.to_owned()]),
    }
}

fn paths_of(listing: directory::Listing) -> Vec<PathBuf> {
    listing.files.into_iter().map(|file| file.path).collect()
}

/// The error for openb CSV where Kubernetes objects are expected.
const CSV: &str = "openb CSV is read by replay and compare only: pass the output of `kubectl get nodes,pods -A -o json`";

/// The error for a kustomization, which may lack a kind.
const UNRENDERED: &str =
    "a kustomization, not a manifest: render it first with `kubectl kustomize`";

fn is_kustomization(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    matches!(name, Some("kustomization.yaml" | "kustomization.yml" | "Kustomization"))
}

/// Reads the files of a directory.
fn directory(
    path: &Path,
    left: &mut u64,
    strict: Strict,
    reader: &mut Reader,
    intake: &mut Intake,
) -> Result<(), CommandError> {
    let listing = directory::list(path)?;
    let before = reader.mark();
    let (mut used, mut foreign) = (0, Vec::new());
    let bar = progress(path);
    for directory::Found { path: file, quotes } in &listing.files {
        let stored = bytes(file, &bar)?;
        if stored.iter().all(u8::is_ascii_whitespace) {
            foreign.push(file);
            continue;
        }
        let bytes = files::content(left, stored);
        let bytes = bytes.map_err(|wrong| CommandError::wrong(file, wrong).quoting(*quotes))?;
        match reader.read(&bytes) {
            Ok(()) => {
                used += 1;
                strict.examine(file, &bytes, *quotes, intake)?;
            }
            Err(error) if error.is_foreign() => foreign.push(file),
            Err(error) => return Err(not_read_at(file, &bytes, &error).quoting(*quotes)),
        }
    }
    if used == 0 {
        if let Some(note) =
            note(path, used, 0, &listing, &foreign).filter(|_| listing.has_skipped())
        {
            terminal::note(&note);
        }
        let what = "no Kubernetes objects in the .json, .yaml and .yml files (.gz, .zst) of this directory: pass the \
                    directory of a dump";
        return Err(CommandError::File { file: path.to_owned(), what: what.to_owned() });
    }
    let copies = reader.remove_copies(&before);
    if let Some(note) = note(path, used, copies, &listing, &foreign) {
        intake.note(note);
    }
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
    copies: usize,
    listing: &directory::Listing,
    foreign: &[&PathBuf],
) -> Option<String> {
    let mut ignored = Vec::new();
    if copies > 0 {
        ignored.push(format!("{} of the same objects", copies_of(copies)));
    }
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
    let named = [
        (&listing.links, "directory link", "not followed"),
        (&listing.outside, "link", "out of the directory"),
        (&listing.dangling, "link", "without a target"),
        (&listing.special, "file", "not regular"),
    ];
    for (paths, noun, why) in named.into_iter().filter(|(paths, ..)| !paths.is_empty()) {
        let inner = |file: &PathBuf| file.strip_prefix(path).unwrap_or(file).display().to_string();
        let names = first_of(10, paths.iter().map(inner));
        ignored.push(format!("{} ({why}: {names})", count(paths.len(), noun)));
    }
    (!ignored.is_empty()).then(|| {
        format!("{}: read {}, ignored {}", path.display(), count(used, "file"), ignored.join(", "))
    })
}
