//! The verdicts of selectors, which are CEL expressions, on devices.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use crate::cel::{self, Program, Version};
use crate::model::{Attribute, ResourceSlice};

/// The number of programs that are kept.
const MOST_PROGRAMS: usize = 4096;
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

type Compiled = Result<Arc<Program>, Arc<str>>;

/// Decides whether devices match CEL expressions. Each expression is compiled once, and evaluated once for each device of
/// a slice.
#[derive(Default)]
pub struct Selectors {
    programs: RwLock<HashMap<Arc<str>, Compiled>>,
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
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = lock().get(expression, slice, device) {
            return verdict;
        }
        let verdict = self.evaluate(expression, slice, device);
        lock().put(expression, slice, device, verdict.clone());
        verdict
    }

    fn evaluate(
        &self,
        expression: &Arc<str>,
        slice: &ResourceSlice,
        device: usize,
    ) -> Result<bool, SelectorError> {
        let program = self.program(expression).map_err(SelectorError::Compile)?;
        let Some(device) = slice.spec.devices.get(device) else { return Ok(false) };
        let parsed = |(name, attribute): (&Arc<str>, &Attribute)| match attribute {
            Attribute::Version(text) => text.parse::<Version>().map(Some).map_err(|error| {
                let reason = format!("attribute {name}: parse semantic version: {error}");
                SelectorError::Runtime(reason.into())
            }),
            _ => Ok(None),
        };
        let versions = device.attributes.iter().map(parsed).collect::<Result<Vec<_>, _>>()?;
        let mut given =
            cel::Device::new(&slice.spec.driver).allow_multiple_allocations(device.is_shared());
        for ((name, attribute), version) in device.attributes.iter().zip(&versions) {
            let value = match (attribute, version) {
                (Attribute::Int(value), _) => cel::Attribute::Int(*value),
                (Attribute::Bool(value), _) => cel::Attribute::Bool(*value),
                (Attribute::String(value), _) => cel::Attribute::String(value),
                (Attribute::Version(_), Some(version)) => cel::Attribute::Version(version),
                (Attribute::Version(text), None) => cel::Attribute::String(text),
            };
            given = given.attribute(name, value);
        }
        for (name, capacity) in &device.capacity {
            given = given.capacity(name, capacity.value.quantity());
        }
        let verdict = program.matches(&given);
        verdict.map_err(|error| SelectorError::Runtime(error.to_string().into()))
    }

    fn program(&self, expression: &Arc<str>) -> Compiled {
        let programs = self.programs.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = programs.get(expression) {
            return program.clone();
        }
        drop(programs);
        let compiled = Program::compile(expression);
        let compiled = compiled.map(Arc::new).map_err(|error| error.to_string().into());
        let mut programs = self.programs.write().unwrap_or_else(PoisonError::into_inner);
        if programs.len() >= MOST_PROGRAMS {
            programs.clear();
        }
        programs.insert(expression.clone(), compiled.clone());
        compiled
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
        if self.slices >= MOST_SLICES {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Device;

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
