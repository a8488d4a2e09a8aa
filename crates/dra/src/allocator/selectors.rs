//! The verdicts of selectors, which are CEL expressions, on devices.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::cel::Program;
use crate::model::ResourceSlice;

/// The number of expressions whose programs and verdicts are kept.
const MOST_EXPRESSIONS: usize = 4096;
/// The number of slices, over all expressions, whose verdicts are kept.
const MOST_SLICES: usize = 1 << 16;

/// Why a selector has no verdict on a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The expression cannot be compiled.
    #[error("CEL compile error: {0}")]
    Compile(Arc<str>),
    /// The evaluation failed.
    #[error("CEL runtime error: {0}")]
    Runtime(Arc<str>),
}

/// Decides whether devices match CEL expressions. Each expression is compiled once, and evaluated once for each device of
/// a slice.
#[derive(Default)]
pub struct Selectors(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    by_expression: HashMap<Arc<str>, OfExpression>,
    slices: usize,
}

struct OfExpression {
    program: Result<Arc<Program>, SelectorError>,
    /// By the address of the slice.
    slices: HashMap<usize, OfSlice>,
}

/// The verdicts on the devices of a slice.
struct OfSlice {
    /// Keeps the address from being reused.
    slice: Weak<ResourceSlice>,
    verdicts: Box<[Option<Result<bool, SelectorError>>]>,
}

impl Selectors {
    /// Returns whether the device with this index in the slice matches the expression.
    ///
    /// # Errors
    ///
    /// Returns an error if the expression cannot be compiled, or if its evaluation fails.
    pub fn matches(
        &self,
        expression: &Arc<str>,
        slice: &Arc<ResourceSlice>,
        device: usize,
    ) -> Result<bool, SelectorError> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match lock().by_expression.get(expression) {
            Some(of) => {
                let of_slice = of.slices.get(&address(slice));
                if let Some(Some(verdict)) = of_slice.and_then(|of| of.verdicts.get(device)) {
                    return verdict.clone();
                }
                Some(of.program.clone())
            }
            None => None,
        };
        // Without the lock, so that threads compile and evaluate at once.
        let program = known.unwrap_or_else(|| {
            let compiled = Program::compile(expression).map(Arc::new);
            compiled.map_err(|error| SelectorError::Compile(error.to_string().into()))
        });
        let verdict = program.clone().and_then(|program| {
            let Some(device) = slice.spec.devices.get(device) else { return Ok(false) };
            let verdict = program.matches(&slice.spec.driver, device);
            verdict.map_err(|error| SelectorError::Runtime(error.to_string().into()))
        });
        lock().put(expression, program, slice, device, verdict.clone());
        verdict
    }
}

impl Kept {
    fn put(
        &mut self,
        expression: &Arc<str>,
        program: Result<Arc<Program>, SelectorError>,
        slice: &Arc<ResourceSlice>,
        device: usize,
        verdict: Result<bool, SelectorError>,
    ) {
        if self.slices >= MOST_SLICES || self.by_expression.len() >= MOST_EXPRESSIONS {
            *self = Kept::default();
        }
        let new = || OfExpression { program, slices: HashMap::new() };
        let of = self.by_expression.entry(expression.clone()).or_insert_with(new);
        let slices = &mut self.slices;
        let of = of.slices.entry(address(slice)).or_insert_with(|| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Attribute, Device};

    #[test]
    fn an_invalid_version_is_reported_with_its_attribute() {
        let version = Attribute::Version("1".into());
        let device = Device { attributes: [("v".into(), version)].into(), ..Device::default() };
        let mut slice = ResourceSlice::default();
        slice.spec.devices.push(device);
        let failed = Selectors::default().matches(&"true".into(), &Arc::new(slice), 0);
        let reason = "attribute v: parse semantic version: No Major.Minor.Patch elements found";
        assert_eq!(failed, Err(SelectorError::Runtime(reason.into())));
    }
}
