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
use crate::error::Failure;
use crate::files;
use crate::intake::Intake;
use crate::terminal::{self, Of};
use crate::text::count;

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
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    content(file, &progress(file))
}

fn content(file: &Path, bar: &ProgressBar) -> Result<Vec<u8>, Failure> {
    files::content(bytes(file, bar)?).map_err(|wrong| Failure::wrong(file, wrong))
}

/// The progress of reading a file, or the files of a directory.
fn progress(path: &Path) -> ProgressBar {
    let length = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    let length = length.map_or(0, |file| file.len());
    terminal::progress(format!("reading {}", path.display()), length, Of::Bytes)
}

/// The bytes of a file or of standard input, still compressed.
fn bytes(file: &Path, bar: &ProgressBar) -> Result<Vec<u8>, Failure> {
    let open = |error| Failure::Open { file: file.to_owned(), error };
    if is_standard_input(file) {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Err(Failure::Usage(
                "standard input (-) is empty after its first use: pass - for one argument only"
                    .to_owned(),
            ));
        }
        return all(std::io::stdin().lock()).map_err(open);
    }
    if ["http://", "https://"].iter().any(|scheme| file.to_string_lossy().starts_with(scheme)) {
        let what =
            "addresses are not read: download the file, for example with curl, and pass it or -";
        return Err(Failure::File { file: file.to_owned(), what: what.to_owned() });
    }
    let opened = std::fs::File::open(file).map_err(open)?;
    all(bar.wrap_read(opened)).map_err(open)
}

fn all(mut from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).map(|_| bytes)
}

/// Reads objects from files, directories and standard input. Directories get a note about the files that are ignored.
pub(crate) fn objects(
    paths: &[PathBuf],
    strict: Strict,
    reader: &mut Reader,
    intake: &mut Intake,
) -> Result<(), Failure> {
    for path in paths {
        if path.is_dir() {
            directory(path, strict, reader, intake)?;
        } else {
            // Parsing counts as reading.
            let bar = progress(path);
            let bytes = content(path, &bar)?;
            let refuses = |what: &str| Failure::File { file: path.clone(), what: what.to_owned() };
            reader.read(&bytes).map_err(|error| match error.is_foreign() {
                _ if is_csv(path) => refuses(CSV),
                true if is_kustomization(path) => refuses(UNRENDERED),
                _ => not_read_at(path, &bytes, &error),
            })?;
            strict.examine(path, &bytes, intake)?;
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
            true => directory::list(path).map(|listing| listing.files).unwrap_or_default(),
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
    strict: Strict,
    reader: &mut Reader,
    intake: &mut Intake,
) -> Result<(), Failure> {
    let listing = directory::list(path)?;
    let before = reader.mark();
    let (mut used, mut foreign) = (0, Vec::new());
    let bar = progress(path);
    for file in &listing.files {
        let stored = bytes(file, &bar)?;
        if stored.iter().all(u8::is_ascii_whitespace) {
            foreign.push(file);
            continue;
        }
        let bytes = files::content(stored).map_err(|wrong| Failure::wrong(file, wrong))?;
        match reader.read(&bytes) {
            Ok(()) => {
                used += 1;
                strict.examine(file, &bytes, intake)?;
            }
            Err(error) if error.is_foreign() => foreign.push(file),
            Err(error) => return Err(not_read_at(file, &bytes, &error)),
        }
    }
    if used == 0 {
        let what = "no Kubernetes objects in the .json, .yaml and .yml files (.gz, .zst) of this directory: pass the \
                    directory of a dump";
        return Err(Failure::File { file: path.to_owned(), what: what.to_owned() });
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
    if listing.links > 0 {
        ignored.push(count(listing.links, "directory link"));
    }
    (!ignored.is_empty()).then(|| {
        format!("{}: read {}, ignored {}", path.display(), count(used, "file"), ignored.join(", "))
    })
}
