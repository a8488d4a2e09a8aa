//! Sessions: changes of a cluster that live for a while, each with its answer and with the cluster after it.
//!
//! A session begins with a reading, or with another session. Its cluster does not change when a newer one is read. It
//! shares all data with the cluster that it began with, apart from the data that its change touched.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::view::View;

/// The most sessions at a time.
const MOST: usize = 1_000;

/// The time that a session lives after it was last used.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// A change, its answer, and the cluster after it.
pub(super) struct Session {
    pub(super) parent: Option<String>,
    pub(super) created: Timestamp,
    pub(super) change: Map<String, Value>,
    pub(super) answer: Value,
    pub(super) view: Arc<View>,
}

/// A session, and when it ends.
struct Held {
    session: Arc<Session>,
    ends: Instant,
}

/// The sessions by their names.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<String, Held>>);

/// Why a session is not added.
#[derive(Debug)]
pub(super) enum NotAdded {
    /// There are as many sessions as allowed.
    Full,
    /// The parent has ended.
    NoParent,
}

impl Sessions {
    /// Runs `of` with the sessions that have not ended. Those that have are freed after the lock.
    fn with<T>(&self, of: impl FnOnce(&mut HashMap<String, Held>) -> T) -> T {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let ended: Vec<(String, Held)> = sessions.extract_if(|_, held| held.ends <= now).collect();
        let result = of(&mut sessions);
        drop(sessions);
        drop(ended);
        result
    }

    /// The number of sessions. Frees those that have ended.
    pub(super) fn len(&self) -> usize {
        self.with(|living| living.len())
    }

    /// Adds a session under a new name, and returns it as its clients see it.
    pub(super) fn add(&self, id: String, session: Session) -> Result<Value, NotAdded> {
        self.with(|living| {
            if living.len() >= MOST {
                return Err(NotAdded::Full);
            }
            // The parent may have been deleted while the change was simulated.
            if session.parent.as_ref().is_some_and(|parent| !living.contains_key(parent)) {
                return Err(NotAdded::NoParent);
            }
            let held = Held { session: Arc::new(session), ends: Instant::now() + LIFETIME };
            let json = held.json(&id);
            living.insert(id.clone(), held);
            live_on(living, &id);
            Ok(json)
        })
    }

    /// Uses a session, and those that it began with: they live on. Also returns it as its clients see it, without the
    /// answer.
    pub(super) fn get(&self, id: &str) -> Option<(Arc<Session>, Value)> {
        self.with(|living| {
            let found = living.get(id)?.session.clone();
            live_on(living, id);
            Some((found, living.get(id)?.json(id)))
        })
    }

    /// Deletes a session and all that began with it. Returns whether it existed.
    pub(super) fn remove(&self, id: &str) -> bool {
        let removed = self.with(|living| {
            let mut removed: Vec<(String, Held)> = living.remove_entry(id).into_iter().collect();
            let mut next = 0;
            while let Some((parent, _)) = removed.get(next) {
                let parent = parent.clone();
                let is_child = |held: &Held| held.session.parent.as_ref() == Some(&parent);
                removed.extend(living.extract_if(|_, held| is_child(held)));
                next += 1;
            }
            removed
        });
        !removed.is_empty()
    }

    /// All sessions, the oldest first.
    pub(super) fn list(&self) -> Value {
        self.with(|living| {
            let mut all: Vec<(&String, &Held)> = living.iter().collect();
            all.sort_by_key(|(id, held)| (held.session.created, *id));
            let all = all.into_iter().map(|(id, held)| held.json(id));
            json!({ "sessions": all.collect::<Vec<_>>() })
        })
    }
}

/// Extends the life of a session, and of those that it began with.
fn live_on(living: &mut HashMap<String, Held>, id: &str) {
    let ends = Instant::now() + LIFETIME;
    let mut next = Some(id.to_owned());
    while let Some(held) = next.and_then(|id| living.get_mut(&id)) {
        held.ends = ends;
        next = held.session.parent.clone();
    }
}

impl Held {
    fn json(&self, id: &str) -> Value {
        let Session { parent, created, change, view, .. } = &*self.session;
        let left = self.ends.saturating_duration_since(Instant::now());
        let expires = Timestamp::now().checked_add(left).map(|at| at.to_string());
        json!({
            "id": id,
            "parent": parent,
            "created": created.to_string(),
            "expires": expires.unwrap_or_default(),
            "generation": view.reading.generation,
            "change": change,
        })
    }
}
