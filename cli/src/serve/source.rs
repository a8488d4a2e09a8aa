//! Where the cluster of the questions comes from, and when it is read again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portolan_kube::mirror::{Changes, Copies, Unread};

use super::example;
use super::play::{Play, Replayed};
use super::view::{Reading, View};
use crate::cluster::{self, From, Input, Readings};
use crate::error::CommandError;
use crate::input;
use crate::live::fetch;
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
    /// A running cluster, which is followed.
    Running(From, Arc<Copies>),
    Replay(Arc<Play>),
}

/// The files of a source: their paths, times and sizes.
pub(super) type Stamp = Vec<(PathBuf, Option<SystemTime>, u64)>;

impl Source {
    /// Opens the source. A running cluster is followed on the current runtime. A replay has a reading every `step`.
    pub(super) async fn open(
        from: &From,
        replayed: &Replayed,
        step: Duration,
        rules: &Rules,
    ) -> Result<Source, CommandError> {
        Ok(match from {
            _ if replayed.replay => {
                Source::Replay(Play::start(replayed, from.strict, from.limit, step, rules)?)
            }
            from if from.is_unspecified() => Source::Example,
            from if from.is_live() => {
                Source::Running(from.clone(), Arc::new(fetch::follow(from.server()).await?))
            }
            from => Source::Files(from.clone()),
        })
    }

    /// The name of the source for people.
    pub(super) fn name(&self) -> String {
        match self {
            Source::Example => "an example cluster".to_owned(),
            Source::Running(..) => "the running cluster".to_owned(),
            Source::Replay(play) => format!("the replay of {}", play.name),
            Source::Files(from) => match from.files() {
                [file] if input::is_standard_input(file) => "standard input".to_owned(),
                [file] => file.file_name().unwrap_or(file.as_os_str()).display().to_string(),
                files => count(files.len(), "file"),
            },
        }
    }

    /// The readings of this source, of which there are none yet.
    pub(super) fn readings(&self) -> Readings {
        match self {
            Source::Running(..) => Readings::watched(),
            Source::Example | Source::Files(_) | Source::Replay(_) => Readings::default(),
        }
    }

    /// Whether readings are held however old they are.
    pub(super) fn is_replay(&self) -> bool {
        matches!(self, Source::Replay(_))
    }

    /// Reads the cluster, unless it equals the last reading, or its files change meanwhile. Also returns the objects as they were read; those of a
    /// replay were not.
    pub(super) fn read(
        &self,
        generation: u64,
        readings: &mut Readings,
        rules: &Rules,
    ) -> Result<Option<(Reading, Option<Input>)>, CommandError> {
        let input = match self {
            Source::Replay(play) => {
                let Some((loaded, moment)) = play.take()? else { return Ok(None) };
                let reading = Reading::of(generation, loaded)?.at_moment(moment);
                return Ok(Some((reading, None)));
            }
            Source::Example => cluster::read_manifests(&example::manifests(), &rules.godel)?,
            Source::Files(from) => {
                let stamp = self.stamp()?;
                let read = cluster::read_with(from, &rules.godel, &[]);
                // A part of a file that was being written may look like a file.
                if self.stamp()? != stamp {
                    return Ok(None);
                }
                read?.0
            }
            Source::Running(from, copies) => {
                let read = (copies.read(), unread(copies));
                cluster::input_of(read, from, &rules.godel)?
            }
        };
        let Some(loaded) = readings.load(input.clone(), &rules.godel)? else { return Ok(None) };
        let reading = Reading::of(generation, loaded)?;
        let reading = match self {
            Source::Example => View::of(reading).settled(rules)?,
            _ => reading,
        };
        Ok(Some((reading, Some(input))))
    }

    /// What to wait for before the next look at the source, unless it never changes.
    pub(super) fn changes(&self, refresh: Duration) -> Option<Wait> {
        match self {
            Source::Example => None,
            // Standard input and pipes end.
            Source::Files(from) => {
                let is_kept = |file: &PathBuf| file.is_file() || file.is_dir();
                let wait = Wait { changes: What::Nothing, pause: LOOK };
                from.files().iter().all(is_kept).then_some(wait)
            }
            Source::Running(_, copies) => {
                Some(Wait { changes: What::Copies(copies.changes()), pause: refresh })
            }
            Source::Replay(play) => {
                Some(Wait { changes: What::Play(play.clone()), pause: Duration::ZERO })
            }
        }
    }

    /// Why the last reading may be out of date, if it may be.
    pub(super) fn failure(&self) -> Option<String> {
        match self {
            Source::Running(_, copies) => copies.failure(),
            Source::Replay(play) => play.failure(),
            Source::Example | Source::Files(_) => None,
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

/// What announces changes of a source.
enum What {
    /// Files announce nothing.
    Nothing,
    Copies(Changes),
    Play(Arc<Play>),
}

/// Waits until a look at the source may find a change.
pub(super) struct Wait {
    changes: What,
    /// The shortest time between two looks.
    pause: Duration,
}

impl Wait {
    /// Returns `false` if the source is no longer followed.
    pub(super) async fn wait(&mut self) -> bool {
        let is_followed = match &mut self.changes {
            What::Copies(changes) => changes.wait().await,
            What::Play(play) => {
                play.changed().await;
                true
            }
            What::Nothing => true,
        };
        // Changes often come together.
        tokio::time::sleep(self.pause).await;
        if let What::Copies(changes) = &mut self.changes {
            changes.skip();
        }
        is_followed
    }
}

/// Notes about the kinds of which objects are missing.
fn unread(copies: &Copies) -> Vec<String> {
    let note = |unread: Unread| match unread.why {
        Some(why) => format!("without {}: {why}", unread.plural),
        None => format!("some {} cannot be read: the log names them", unread.plural),
    };
    copies.unread().into_iter().map(note).collect()
}
