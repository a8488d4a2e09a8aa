//! Selectors as CEL expressions.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::cel::{self, Program, Version};
use crate::model::{Attribute, ResourceSlice};

use super::{SelectorError, Selectors};

/// The number of programs that are kept.
const MOST: usize = 4096;

type Compiled = Result<Arc<Program>, Arc<str>>;

/// Evaluates CEL expressions. Each expression is compiled once.
#[derive(Default)]
pub struct CelSelectors {
    programs: RwLock<HashMap<Arc<str>, Compiled>>,
}

impl CelSelectors {
    fn program(&self, expression: &Arc<str>) -> Compiled {
        let programs = self.programs.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = programs.get(expression) {
            return program.clone();
        }
        drop(programs);
        let compiled = Program::compile(expression);
        let compiled = compiled.map(Arc::new).map_err(|error| error.to_string().into());
        let mut programs = self.programs.write().unwrap_or_else(PoisonError::into_inner);
        if programs.len() >= MOST {
            programs.clear();
        }
        programs.insert(expression.clone(), compiled.clone());
        compiled
    }
}

impl Selectors for CelSelectors {
    fn matches(
        &self,
        expression: &Arc<str>,
        slice: &Arc<ResourceSlice>,
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
        let failed = CelSelectors::default().matches(&"true".into(), &Arc::new(slice), 0);
        let reason = "attribute v: parse semantic version: No Major.Minor.Patch elements found";
        assert_eq!(failed, Err(SelectorError::Runtime(reason.into())));
    }
}
