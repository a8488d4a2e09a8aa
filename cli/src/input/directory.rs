//! Lists the files of a directory that may contain Kubernetes objects.
//!
//! The order is that of `kubectl apply -f DIR -R`: by name, with the files of a directory at the position of its name.

use std::path::{Path, PathBuf};

use crate::error::Failure;

/// The extensions of files that are read, and of compressed files.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];
const COMPRESSED: [&str; 3] = ["gz", "zst", "zstd"];

/// The maximum depth of nested directories, far above that of dumps.
const DEPTH: usize = 64;

/// The content of a directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The files to read, in order.
    pub(super) files: Vec<PathBuf>,
    /// The number of files with another extension.
    pub(super) others: usize,
    /// The number of files and directories whose name starts with a dot, such as `.git`.
    pub(super) hidden: usize,
    /// The number of links to directories. They are not followed, because they may form a cycle.
    pub(super) links: usize,
}

/// Lists a directory and the directories in it.
pub(super) fn list(root: &Path) -> Result<Listing, Failure> {
    let mut listing = Listing::default();
    visit(root, &mut listing, 0)?;
    Ok(listing)
}

fn visit(directory: &Path, listing: &mut Listing, depth: usize) -> Result<(), Failure> {
    let open = |error| Failure::Open { file: directory.to_owned(), error };
    if depth > DEPTH {
        let what = format!("directories are nested more than {DEPTH} deep: pass a lower directory");
        return Err(Failure::File { file: directory.to_owned(), what });
    }
    let entries = std::fs::read_dir(directory).map_err(open)?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(open)?.path());
    }
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') {
            listing.hidden += 1;
        } else if path.is_dir() {
            if path.is_symlink() {
                listing.links += 1;
            } else {
                visit(&path, listing, depth + 1)?;
            }
        } else if is_read(&name) {
            listing.files.push(path);
        } else {
            listing.others += 1;
        }
    }
    Ok(())
}

/// Whether a file of this name is read.
fn is_read(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let plain = match name.rsplit_once('.') {
        Some((plain, extension)) if COMPRESSED.contains(&extension) => plain,
        _ => &name,
    };
    plain.rsplit_once('.').is_some_and(|(_, extension)| EXTENSIONS.contains(&extension))
}
