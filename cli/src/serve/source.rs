//! Where the cluster of the questions comes from, and when it is read again.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::example;
use super::view::View;
use crate::cluster::{self, From};
use crate::error::CommandError;
use crate::input;
use crate::policy::Rules;
use crate::text::count;

/// The time between two looks at files.
const LOOK: Duration = Duration::from_secs(1);

/// The source of the cluster.
#[derive(Clone)]
pub(super) enum Source {
    /// The cluster in the program.
    Example,
    Files(From),
    /// A running cluster, and the time between two readings.
    Running(From, Duration),
}

/// The files of a source: their paths, times and sizes.
pub(super) type Stamp = Vec<(PathBuf, Option<SystemTime>, u64)>;

impl Source {
    pub(super) fn of(from: &From, refresh: Duration) -> Source {
        match from {
            from if from.is_unspecified() => Source::Example,
            from if from.is_live() => Source::Running(from.clone(), refresh),
            from => Source::Files(from.clone()),
        }
    }

    /// The name of the source for people.
    pub(super) fn name(&self) -> String {
        match self {
            Source::Example => "an example cluster".to_owned(),
            Source::Running(..) => "the running cluster".to_owned(),
            Source::Files(from) => match from.files() {
                [file] if input::is_standard_input(file) => "standard input".to_owned(),
                [file] => file.file_name().unwrap_or(file.as_os_str()).display().to_string(),
                files => count(files.len(), "file"),
            },
        }
    }

    /// Reads the cluster.
    pub(super) fn read(&self, generation: u64, rules: &Rules) -> Result<View, CommandError> {
        match self {
            Source::Example => {
                let contents = cluster::contents_of(&example::manifests(), &rules.godel)?;
                View::of(generation, contents.load(&rules.godel, Vec::new())?)?.settled(rules)
            }
            Source::Files(from) | Source::Running(from, _) => {
                View::of(generation, cluster::load(from, &rules.godel)?)
            }
        }
    }

    /// The time between two looks at the source, unless it never changes.
    pub(super) fn pause(&self) -> Option<Duration> {
        match self {
            Source::Example => None,
            // Standard input and pipes end.
            Source::Files(from) => {
                let is_kept = |file: &PathBuf| file.is_file() || file.is_dir();
                from.files().iter().all(is_kept).then_some(LOOK)
            }
            Source::Running(_, refresh) => Some(*refresh),
        }
    }

    /// What the source looked like when it was read: equal stamps need no further reading. A running cluster has none.
    ///
    /// # Errors
    ///
    /// A file has become something else, such as a pipe, from which reading could block for ever.
    pub(super) fn stamp(&self) -> Result<Option<Stamp>, CommandError> {
        let Source::Files(from) = self else { return Ok(None) };
        let mut stamp = Stamp::new();
        for root in from.files() {
            for file in input::files(root)? {
                let found = std::fs::metadata(&file);
                let found =
                    found.map_err(|error| CommandError::Open { file: file.clone(), error })?;
                if !found.is_file() && !input::is_standard_input(&file) {
                    let what = "not a regular file: it is not read again".to_owned();
                    return Err(CommandError::File { file, what });
                }
                stamp.push((file, found.modified().ok(), found.len()));
            }
        }
        Ok(Some(stamp))
    }
}
