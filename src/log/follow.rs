//! Following the log: what each event did, for queues, caches and exporters.
//!
//! A scheduling queue has to hear of what happens in the order in which it
//! happened, and must not make the writer wait. So the writer notes what its events
//! did, with each object before and after, and hands the notes over when it has
//! published the version that contains them: what a [`Follower`] has received,
//! every reader of the engine sees. The writer never waits for a follower. A follower
//! with a limit that falls behind by more than that loses the rest and is told
//! ([`NoNote::Overflowed`]); one without a limit costs two reference counts for each note
//! that it has not taken. If nobody follows, nothing is noted.

use std::num::NonZeroUsize;

use crate::model::{Fact, Generation, NoNote, Note};
use portolan_publish::log::stream::{Nothing, Sender, Stream, stream};

/// Receives what events did, in the order of the log and no sooner than readers see
/// it. Dropping it ends it. A clone takes notes from the same stream, each of which
/// goes to one of them.
///
/// ```
/// use std::num::NonZeroUsize;
/// use portolan::log::NoNote;
/// use portolan::model::node;
/// use portolan::{Config, Engine};
///
/// let (mut writer, _reader) = Engine::inline(Config::default());
/// let follower = writer.follow_at_most(NonZeroUsize::new(1_000).expect("not zero"));
/// writer.add_node(node("n1").build())?;
/// assert_eq!(follower.try_next().unwrap_err(), NoNote::Empty, "not published yet");
/// writer.publish();
/// assert_eq!(follower.try_next().expect("the node came").generation.0, 1);
/// # Ok::<(), portolan::model::EventError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Follower(Stream<Entry>);

/// What the stream carries.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Note(Note),
    /// Notes were left out from here on.
    Overflowed,
}

impl Follower {
    /// The next note. Never waits.
    ///
    /// # Errors
    ///
    /// There is none now, or none will come.
    pub fn try_next(&self) -> Result<Note, NoNote> {
        note_of(self.0.try_next())
    }

    /// The next note, waiting for one until `deadline`, or for ever without one. Not for a thread within
    /// [`Engine::with_writer`](crate::Engine::with_writer): the note that it waits for could not come.
    ///
    /// # Errors
    ///
    /// The deadline passed ([`NoNote::Empty`]), or no note will come.
    #[cfg(not(loom))]
    pub fn next_until(&self, deadline: Option<std::time::Instant>) -> Result<Note, NoNote> {
        note_of(self.0.next_until(deadline))
    }

    /// How many notes wait; the notice that notes were lost counts as one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For waiting on it beside other things.
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

/// The writer's end: notes that wait for their version, and who gets them.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    to: Vec<(Sender<Entry>, Option<NonZeroUsize>)>,
    noted: Vec<Note>,
}

impl Followers {
    /// Adds a follower that receives the notes of later events.
    pub(crate) fn follow(&mut self, limit: Option<NonZeroUsize>) -> Follower {
        let (sender, receiver) = stream();
        self.to.push((sender, limit));
        Follower(receiver)
    }

    /// Whether anybody follows.
    pub(crate) fn is_followed(&self) -> bool {
        !self.to.is_empty()
    }

    pub(crate) fn note(&mut self, generation: Generation, fact: Fact) {
        self.noted.push(Note { generation, fact });
    }

    /// Hands over what was noted: its version is published. O(notes × followers),
    /// and those who are gone are forgotten.
    pub(crate) fn hand_over(&mut self) {
        let Followers { to, noted } = self;
        if !noted.is_empty() {
            to.retain(|(to, limit)| {
                noted.iter().all(|note| {
                    let fits = limit.is_none_or(|limit| to.len() < limit.get());
                    let entry = if fits { Entry::Note(note.clone()) } else { Entry::Overflowed };
                    to.send(entry) && fits
                })
            });
            noted.clear();
        }
    }
}
