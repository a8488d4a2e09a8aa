//! Following the log: the effects of each event, for queues, caches and exporters.
//!
//! A scheduling queue must receive the effects of events in the order in which they occurred, and must not make the
//! writer wait. The writer therefore records the effects of its events, with each object before and after, and delivers
//! these notes after it has published the version that contains them. Everything that a [`Follower`] has received is
//! thus visible to every reader of the engine. The writer never waits for a follower. If a follower has a limit and
//! falls behind by more than that, it loses the remaining notes and receives [`NoNote::Overflowed`]; a follower without
//! a limit costs two reference counts for each note that it has not taken. Without followers, nothing is recorded.

use std::num::NonZeroUsize;

use crate::model::{Fact, Generation, NoNote, Note};
use portolan_publish::log::stream::{Nothing, Sender, Stream, stream};

/// Receives the effects of events, in the order of the log and no sooner than readers can see them. Dropping the
/// follower ends the subscription. A clone shares the stream: each note goes to only one of the clones.
///
/// ```
/// use std::num::NonZeroUsize;
/// use portolan::cache::{Config, Engine};
/// use portolan::model::{NoNote, node};
///
/// let (mut writer, _reader) = Engine::inline(Config::default());
/// let follower = writer.follow_at_most(NonZeroUsize::new(1_000).expect("not zero"));
/// writer.add_node(node("n1").build())?;
/// assert_eq!(follower.try_next().unwrap_err(), NoNote::Empty, "not published yet");
/// writer.publish();
/// assert_eq!(follower.try_next().expect("the node appeared").generation.0, 1);
/// # Ok::<(), portolan::model::EventError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Follower(Stream<Entry>);

/// The items of the stream.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Note(Note),
    /// Notes are missing from here on.
    Overflowed,
}

impl Follower {
    /// Returns the next note without waiting.
    ///
    /// # Errors
    ///
    /// Returns [`NoNote::Empty`] if no note is available now, and another error if none will follow.
    pub fn try_next(&self) -> Result<Note, NoNote> {
        note_of(self.0.try_next())
    }

    /// Returns the next note, waiting until `deadline`, or indefinitely without one. A thread inside
    /// [`Engine::with_writer`](crate::cache::Engine::with_writer) must not call this, because the note that it waits
    /// for could never arrive.
    ///
    /// # Errors
    ///
    /// Returns [`NoNote::Empty`] if the deadline passes, and another error if no note will follow.
    #[cfg(not(loom))]
    pub fn next_until(&self, deadline: Option<std::time::Instant>) -> Result<Note, NoNote> {
        note_of(self.0.next_until(deadline))
    }

    /// Returns the number of undelivered notes; the notice of lost notes counts as one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if no note is undelivered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the stream, for waiting on it together with other channels.
    pub(crate) fn notes(&self) -> &Stream<Entry> {
        &self.0
    }
}

fn note_of(entry: Result<Entry, Nothing>) -> Result<Note, NoNote> {
    match entry {
        Ok(Entry::Note(note)) => Ok(note),
        Ok(Entry::Overflowed) => Err(NoNote::Overflowed),
        Err(Nothing::Now) => Err(NoNote::Empty),
        Err(Nothing::Ever) => Err(NoNote::Closed),
    }
}

/// The writer's end of all streams: the followers, and the notes that wait for their version to be published.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    followers: Vec<(Sender<Entry>, Option<NonZeroUsize>)>,
    pending: Vec<Note>,
}

impl Followers {
    /// Adds a follower that receives the notes of later events.
    pub(crate) fn follow(&mut self, limit: Option<NonZeroUsize>) -> Follower {
        let (sender, receiver) = stream();
        self.followers.push((sender, limit));
        Follower(receiver)
    }

    /// Returns `true` if there is at least one follower.
    pub(crate) fn is_followed(&self) -> bool {
        !self.followers.is_empty()
    }

    pub(crate) fn note(&mut self, generation: Generation, fact: Fact) {
        self.pending.push(Note { generation, fact });
    }

    /// Delivers the pending notes, after their version has been published, and drops the followers that no longer
    /// exist. O(notes × followers).
    pub(crate) fn hand_over(&mut self) {
        let Followers { followers, pending } = self;
        if !pending.is_empty() {
            followers.retain(|(sender, limit)| {
                pending.iter().all(|note| {
                    let fits = limit.is_none_or(|limit| sender.len() < limit.get());
                    let entry = if fits { Entry::Note(note.clone()) } else { Entry::Overflowed };
                    sender.send(entry) && fits
                })
            });
            pending.clear();
        }
    }
}
