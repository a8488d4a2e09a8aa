//! Where the cluster of the questions comes from, and when it is read again.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::example;
use super::view::View;
use crate::cluster::{self, From};
use crate::error::CommandError;
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
            // Standard input ends.
            Source::Files(from) => from.files().iter().all(|file| file.exists()).then_some(LOOK),
            Source::Running(_, refresh) => Some(*refresh),
        }
    }

    /// What the source looked like when it was read: equal stamps need no further reading. A running cluster has none.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let Source::Files(from) = self else { return None };
        let mut paths = Vec::new();
        for path in from.files() {
            match std::fs::read_dir(path) {
                Ok(entries) => paths.extend(entries.filter_map(|entry| Some(entry.ok()?.path()))),
                Err(_) => paths.push(path.clone()),
            }
        }
        paths.sort();
        let stamp = |path: PathBuf| {
            let found = std::fs::metadata(&path).ok();
            let size = found.as_ref().map_or(0, std::fs::Metadata::len);
            let time = found.and_then(|found| found.modified().ok());
            (path, time, size)
        };
        Some(paths.into_iter().map(stamp).collect())
    }
}
