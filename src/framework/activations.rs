//! Pods that are to be tried again although no event may help them (kube-scheduler's `Activate`).

use std::sync::{Mutex, PoisonError};

use crate::model::Uid;

/// The pods for which an attempt was requested since the queue last asked.
#[derive(Debug, Default)]
pub(crate) struct Activations(Mutex<Vec<Activation>>);

/// A request for an attempt.
#[derive(Debug)]
pub(crate) struct Activation {
    pub(crate) uid: Uid,
    /// Whether the pod backs off first.
    pub(crate) backs_off: bool,
}

impl Activations {
    /// Requests an attempt for a pod. The queue makes it when it is next called.
    pub(crate) fn request(&self, uid: Uid) {
        self.push(Activation { uid, backs_off: false });
    }

    /// Requests an attempt for a pod when its backoff is over.
    pub(crate) fn request_after_backoff(&self, uid: Uid) {
        self.push(Activation { uid, backs_off: true });
    }

    fn push(&self, activation: Activation) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(activation);
    }

    /// Takes the requests.
    pub(crate) fn take(&self) -> Vec<Activation> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
