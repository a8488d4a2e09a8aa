//! Pods that are to be tried again although no event may help them (kube-scheduler's `Activate`).

use std::sync::{Mutex, PoisonError};

use crate::model::Uid;

/// The pods for which an attempt was requested since the queue last asked.
#[derive(Debug, Default)]
pub(crate) struct Activations(Mutex<Vec<Uid>>);

impl Activations {
    /// Requests an attempt for a pod. The queue makes it when it is next called.
    pub(crate) fn request(&self, uid: Uid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(uid);
    }

    /// Takes the requests.
    pub(crate) fn take(&self) -> Vec<Uid> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
