//! The parts of a cluster's objects that an engine does not have.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use portolan::model::Uid;
use portolan_k8s::{
    Admission, BudgetLimit, DeviceObjects, Objects, PodController, PodFacts, Scales,
};

/// The pod controllers, and their scales once these were asked for.
#[derive(Clone, Default)]
pub(crate) struct Controllers {
    all: Vec<PodController>,
    scales: OnceLock<Arc<Scales>>,
}

impl Controllers {
    pub(super) fn new(all: Vec<PodController>) -> Controllers {
        Controllers { all, scales: OnceLock::new() }
    }

    pub(super) fn all(&self) -> &[PodController] {
        &self.all
    }

    pub(super) fn all_mut(&mut self) -> &mut Vec<PodController> {
        self.scales.take();
        &mut self.all
    }

    pub(super) fn scales(&self) -> &Arc<Scales> {
        self.scales.get_or_init(|| Arc::new(Scales::of(&self.all)))
    }
}

impl PartialEq for Controllers {
    fn eq(&self, other: &Controllers) -> bool {
        self.all == other.all
    }
}

/// Parts that readings share while they are equal. A clone costs reference counts.
#[derive(Clone, Default)]
pub(crate) struct Rest {
    pub(super) controllers: Arc<Controllers>,
    pub(crate) budget_limits: Arc<Vec<BudgetLimit>>,
    pub(super) facts: Arc<PodFacts>,
    pub(super) admission: Arc<Admission>,
    /// The pods that controllers lack and create in steps.
    pub(super) created: Arc<HashSet<Uid>>,
    pub(crate) devices: Arc<DeviceObjects>,
}

/// Replaces a value by an older one that is equal. Returns whether it is.
#[cfg(feature = "cluster")]
pub(super) fn share<T: PartialEq>(new: &mut Arc<T>, before: &Arc<T>) -> bool {
    let is_equal = Arc::ptr_eq(new, before) || **new == **before;
    if is_equal {
        *new = before.clone();
    }
    is_equal
}

impl Rest {
    /// Takes the parts out of the objects.
    pub(crate) fn take(objects: &mut Objects) -> Rest {
        Rest {
            controllers: Controllers::new(std::mem::take(&mut objects.controllers)).into(),
            budget_limits: std::mem::take(&mut objects.budget_limits).into(),
            facts: std::mem::take(&mut objects.facts).into(),
            admission: std::mem::take(&mut objects.admission).into(),
            created: std::mem::take(&mut objects.created).into(),
            devices: std::mem::take(&mut objects.devices).into(),
        }
    }

    /// Takes over the equal parts of an older reading. Returns whether all are equal.
    #[cfg(feature = "cluster")]
    pub(super) fn share(&mut self, before: &Rest) -> bool {
        let parts = [
            share(&mut self.controllers, &before.controllers),
            share(&mut self.budget_limits, &before.budget_limits),
            share(&mut self.facts, &before.facts),
            share(&mut self.admission, &before.admission),
            share(&mut self.created, &before.created),
            share(&mut self.devices, &before.devices),
        ];
        parts.into_iter().all(|is_equal| is_equal)
    }
}
