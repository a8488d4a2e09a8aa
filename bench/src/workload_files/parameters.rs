//! The parameters of a workload, to which `countParam: $name` and similar fields of its operations refer.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::tree::{Invalid, Part, Why, whole};

/// The parameters of one workload, and which of them were used.
#[derive(Debug)]
pub(super) struct Parameters<'t> {
    workload: String,
    values: Vec<(&'t str, Part<'t>)>,
    used: RefCell<BTreeSet<&'t str>>,
}

impl<'t> Parameters<'t> {
    pub(super) fn read(workload: &str, part: Option<Part<'t>>) -> Result<Self, Invalid> {
        let values = part.map_or(Ok(Vec::new()), |part| part.entries())?;
        Ok(Parameters { workload: workload.to_owned(), values, used: RefCell::default() })
    }

    /// The value that a field such as `$initNodes` refers to.
    fn value(&self, field: &Part<'t>) -> Result<(&'t str, &Part<'t>), Invalid> {
        let text = field.text()?;
        let name = text.strip_prefix('$');
        let name = name.ok_or_else(|| field.invalid(Why::NoParameter(text.to_owned())))?;
        let (name, value) =
            self.values.iter().find(|(known, _)| *known == name).ok_or_else(|| {
                let (name, workload) = (name.to_owned(), self.workload.clone());
                field.invalid(Why::UndefinedParameter(name, workload))
            })?;
        self.used.borrow_mut().insert(name);
        Ok((name, value))
    }

    fn wrong(&self, name: &str, value: &Part<'_>, expected: &'static str) -> Invalid {
        value.invalid(Why::WrongParameter(name.to_owned(), self.workload.clone(), expected))
    }

    pub(super) fn count(&self, field: &Part<'t>) -> Result<usize, Invalid> {
        let (name, value) = self.value(field)?;
        let number = value.number().ok().and_then(whole);
        number.ok_or_else(|| self.wrong(name, value, "a count"))
    }

    pub(super) fn flag(&self, field: &Part<'t>) -> Result<bool, Invalid> {
        let (name, value) = self.value(field)?;
        value.flag().map_err(|_| self.wrong(name, value, "true or false"))
    }

    pub(super) fn text(&self, field: &Part<'t>) -> Result<(&'t str, Part<'t>), Invalid> {
        let (name, value) = self.value(field)?;
        let text = value.text().map_err(|_| self.wrong(name, value, "a text"))?;
        Ok((text, value.clone()))
    }

    /// Marks the parameters of an operation that is not read as used.
    pub(super) fn use_all(&self, fields: &[Part<'t>]) {
        for field in fields {
            // Other fields have no parameters.
            let _ = self.value(field);
        }
    }

    /// The first parameter that no operation used.
    pub(super) fn unused(self) -> Option<String> {
        let used = self.used.into_inner();
        let unused = self.values.iter().find(|(name, _)| !used.contains(name));
        unused.map(|(name, _)| (*name).to_owned())
    }
}
