//! Lists the files of a directory that may contain Kubernetes objects.
//!
//! The order is that of `kubectl apply -f DIR -R`: by name, with the files of a directory at the position of its name.

use std::path::{Path, PathBuf};

use crate::error::{CommandError, Quotes};

/// The extensions of files that are read, and of compressed files.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];
const COMPRESSED: [&str; 3] = ["gz", "zst", "zstd"];

/// The maximum depth of nested directories, far above that of dumps.
const DEPTH: usize = 64;

/// The content of a directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The files to read, in order.
    pub(super) files: Vec<Found>,
    /// The number of files with another extension.
    pub(super) others: usize,
    /// The number of files and directories whose name starts with a dot, such as `.git`.
    pub(super) hidden: usize,
    /// Links to directories. They are not followed, because they may form a cycle.
    pub(super) links: Vec<PathBuf>,
    /// Links to files out of the directory. Dumps come from others, who must not choose what is read here.
    pub(super) outside: Vec<PathBuf>,
    /// Links whose target does not exist or cannot be found.
    pub(super) dangling: Vec<PathBuf>,
    /// Pipes, sockets and devices, which may have no end.
    pub(super) special: Vec<PathBuf>,
}

/// A file of a directory.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// How much messages may quote: of a link, only short values.
    pub(super) quotes: Quotes,
}

/// Lists a directory and the directories in it.
pub(super) fn list(root: &Path) -> Result<Listing, CommandError> {
    let mut listing = Listing::default();
    let open = |error| CommandError::Open { file: root.to_owned(), error };
    let real = root.canonicalize().map_err(open)?;
    visit(root, &real, &mut listing, 0)?;
    Ok(listing)
}

/// Lists a directory of the tree whose root has the path `real`.
fn visit(
    directory: &Path,
    real: &Path,
    listing: &mut Listing,
    depth: usize,
) -> Result<(), CommandError> {
    let open = |error| CommandError::Open { file: directory.to_owned(), error };
    if depth > DEPTH {
        let what = format!("directories are nested more than {DEPTH} deep: pass a lower directory");
        return Err(CommandError::File { file: directory.to_owned(), what });
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
                listing.links.push(path);
            } else {
                visit(&path, real, listing, depth + 1)?;
            }
        } else if is_read(&name) {
            listing.add(path, real);
        } else {
            listing.others += 1;
        }
    }
    Ok(())
}

impl Listing {
    /// Adds a file whose name is that of a file to read.
    fn add(&mut self, path: PathBuf, real: &Path) {
        let mut quotes = Quotes::All;
        if path.is_symlink() {
            quotes = Quotes::Short;
            match path.canonicalize() {
                Ok(target) if target.starts_with(real) => {}
                Ok(_) => return self.outside.push(path),
                Err(_) => return self.dangling.push(path),
            }
        }
        // A file whose type is not known is refused when it is read.
        if std::fs::metadata(&path).is_ok_and(|file| !file.is_file()) {
            return self.special.push(path);
        }
        self.files.push(Found { path, quotes });
    }

    /// Whether files are left out that have the name of a file to read.
    pub(super) fn has_skipped(&self) -> bool {
        [&self.outside, &self.dangling, &self.special].iter().any(|paths| !paths.is_empty())
    }
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
