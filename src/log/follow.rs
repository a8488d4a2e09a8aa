//! Following the log: what each event did, for whoever acts on it afterwards.
//!
//! A scheduling queue has to hear of what happens in the order in which it
//! happened, and must not make the writer wait. So the writer notes what its events
//! did, with each object before and after, and hands the notes over when it has
//! published the version that contains them: what a [`Follower`] has received,
//! every reader of the engine sees. The channel is unbounded, since the alternative is
//! a writer that waits for the slowest follower; what a follower has not looked at is
//! two reference counts an event. Where nobody follows, nothing is noted.

use std::sync::Arc;

use crate::model::{Change, Generation, Pod, Uid};
use portolan_publish::log::stream::{Nothing, Sender, Stream, stream};

/// What an event did.
#[derive(Clone, Debug)]
pub enum Fact {
    /// An object appeared, changed or went. Of pods those that are on a node: what
    /// is only assumed is none yet, and one that is confirmed appears.
    Changed(Change),
    /// A pod that is on no node appeared or changed.
    Pending(Arc<Pod>),
    /// A pod that was on no node, or only assumed on one, is deleted.
    NotPending(Uid),
}

/// What an event did, and where it is in the log.
#[derive(Clone, Debug)]
pub struct Note {
    /// The first generation that contains it.
    pub generation: Generation,
    /// What it did.
    pub fact: Fact,
}

/// Why there is no note now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoNote {
    /// Nothing more has happened yet.
    #[error("no event has been published since the last one")]
    Empty,
    /// The engine is gone, and everything was received.
    #[error("the engine is gone: no event will come")]
    Closed,
}

/// Receives what events did, in the order of the log and no sooner than readers see
/// it. Dropping it ends it. A clone takes notes from the same stream, each of which
/// goes to one of them.
#[derive(Clone, Debug)]
pub struct Follower(Stream<Note>);

impl Follower {
    /// The next note. Never waits.
    ///
    /// # Errors
    ///
    /// There is none now, or none will come.
    pub fn try_next(&self) -> Result<Note, NoNote> {
        self.0.try_next().map_err(|nothing| match nothing {
            Nothing::Now => NoNote::Empty,
            Nothing::Ever => NoNote::Closed,
        })
    }

    /// How many notes wait.
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
    pub(crate) fn notes(&self) -> &Stream<Note> {
        &self.0
    }
}

/// The writer's end: notes that wait for their version, and who gets them.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    to: Vec<Sender<Note>>,
    noted: Vec<Note>,
}

impl Followers {
    /// One more, who hears of what is folded from now on.
    pub(crate) fn follow(&mut self) -> Follower {
        let (sender, receiver) = stream();
        self.to.push(sender);
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
            to.retain(|to| noted.iter().all(|note| to.send(note.clone())));
            noted.clear();
        }
    }
}
