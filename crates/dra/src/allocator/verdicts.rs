//! A cache of the verdicts of selectors.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::model::ResourceSlice;

use super::{SelectorError, Selectors};

/// The number of slices, over all expressions, whose verdicts are kept.
const MOST: usize = 1 << 16;

/// Keeps the verdicts of selectors by expression and slice, so that each expression is evaluated once for each device.
pub struct Verdicts<S> {
    selectors: S,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_expression: HashMap<Arc<str>, HashMap<usize, OfSlice>>,
    slices: usize,
}

/// The verdicts on the devices of a slice.
struct OfSlice {
    /// Keeps the address from being reused.
    slice: Weak<ResourceSlice>,
    verdicts: Box<[Option<Result<bool, SelectorError>>]>,
}

impl<S: Selectors> Verdicts<S> {
    /// Creates an empty cache.
    #[must_use]
    pub fn new(selectors: S) -> Verdicts<S> {
        Verdicts { selectors, kept: Mutex::default() }
    }
}

impl Kept {
    fn get(
        &self,
        expression: &str,
        slice: &Arc<ResourceSlice>,
        device: usize,
    ) -> Option<Result<bool, SelectorError>> {
        let of = self.by_expression.get(expression)?.get(&address(slice))?;
        of.verdicts.get(device)?.clone()
    }

    fn put(
        &mut self,
        expression: &Arc<str>,
        slice: &Arc<ResourceSlice>,
        device: usize,
        verdict: Result<bool, SelectorError>,
    ) {
        if self.slices >= MOST {
            *self = Kept::default();
        }
        let of = self.by_expression.entry(expression.clone()).or_default();
        let slices = &mut self.slices;
        let of = of.entry(address(slice)).or_insert_with(|| {
            *slices += 1;
            let verdicts = vec![None; slice.spec.devices.len()].into();
            OfSlice { slice: Arc::downgrade(slice), verdicts }
        });
        debug_assert!(std::ptr::eq(of.slice.as_ptr(), Arc::as_ptr(slice)));
        if let Some(kept) = of.verdicts.get_mut(device) {
            *kept = Some(verdict);
        }
    }
}

fn address(slice: &Arc<ResourceSlice>) -> usize {
    Arc::as_ptr(slice).addr()
}

impl<S: Selectors> Selectors for Verdicts<S> {
    fn matches(
        &self,
        expression: &Arc<str>,
        slice: &Arc<ResourceSlice>,
        device: usize,
    ) -> Result<bool, SelectorError> {
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = lock().get(expression, slice, device) {
            return verdict;
        }
        let verdict = self.selectors.matches(expression, slice, device);
        lock().put(expression, slice, device, verdict.clone());
        verdict
    }
}

impl Selectors for Arc<dyn Selectors> {
    fn matches(
        &self,
        expression: &Arc<str>,
        slice: &Arc<ResourceSlice>,
        device: usize,
    ) -> Result<bool, SelectorError> {
        (**self).matches(expression, slice, device)
    }
}
