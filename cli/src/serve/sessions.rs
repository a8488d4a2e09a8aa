//! Sessions: changes of a cluster that live for a while, each with its answer and with the cluster after it.
//!
//! A session begins with the cluster that was read last, or with another session. Its cluster does not change when a
//! newer one is read. It shares all data with the cluster that it began with, apart from what its change touched.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
pub(super) enum Full {
    /// There are as many as allowed.
    TooMany,
    /// The parent has ended.
    NoParent,
}

impl Sessions {
    /// The sessions that have not ended.
    fn living(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        sessions.retain(|_, held| held.ends > now);
        sessions
    }

    pub(super) fn len(&self) -> usize {
        self.living().len()
    }

    /// Adds a session, and returns its name.
    pub(super) fn add(&self, session: Session) -> Result<String, Full> {
        let mut living = self.living();
        if living.len() >= MOST {
            return Err(Full::TooMany);
        }
        // The parent may have been deleted while the change was simulated.
        if session.parent.as_ref().is_some_and(|parent| !living.contains_key(parent)) {
            return Err(Full::NoParent);
        }
        let id = format!("{:032x}", fastrand::u128(..));
        let held = Held { session: Arc::new(session), ends: Instant::now() + LIFETIME };
        living.insert(id.clone(), held);
        Ok(id)
    }

    /// Uses a session, and those that it began with: they live on.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Session>> {
        let mut living = self.living();
        let found = living.get(id)?.session.clone();
        let mut next = Some(id.to_owned());
        while let Some(held) = next.and_then(|id| living.get_mut(&id)) {
            held.ends = Instant::now() + LIFETIME;
            next = held.session.parent.clone();
        }
        Some(found)
    }

    /// Deletes a session and all that began with it. Returns whether it existed.
    pub(super) fn remove(&self, id: &str) -> bool {
        let mut living = self.living();
        let existed = living.remove(id).is_some();
        loop {
            let orphan = |held: &Held| {
                held.session.parent.as_ref().is_some_and(|parent| !living.contains_key(parent))
            };
            let orphans: Vec<String> =
                living.iter().filter(|(_, held)| orphan(held)).map(|(id, _)| id.clone()).collect();
            if orphans.is_empty() {
                return existed;
            }
            orphans.iter().for_each(|id| drop(living.remove(id)));
        }
    }

    /// The session as its clients see it, without the answer.
    pub(super) fn json(&self, id: &str) -> Option<Value> {
        let living = self.living();
        living.get(id).map(|held| held.json(id))
    }

    /// All sessions, the oldest first.
    pub(super) fn list(&self) -> Value {
        let living = self.living();
        let mut all: Vec<(&String, &Held)> = living.iter().collect();
        all.sort_by_key(|(id, held)| (held.session.created, *id));
        let all = all.into_iter().map(|(id, held)| held.json(id));
        json!({ "sessions": all.collect::<Vec<_>>() })
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
            "generation": view.generation,
            "change": change,
        })
    }
}
