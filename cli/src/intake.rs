//! The objects that a command has read from its inputs or ignored, the reasons, and the defects of the inputs.
//!
//! Nothing is dropped silently: each object of an input is counted as read or as ignored. Tables are followed by one
//! line on standard error; JSON results have the field `input`.

use std::collections::BTreeMap;
use std::fmt::Write;

use portolan_k8s::Objects;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::CommandError;
use crate::terminal;
use crate::text::{count, shortened};

/// How many warnings are printed. JSON contains all that are kept.
const SHOWN: usize = 5;
/// The longest warning, in characters.
const LONGEST: usize = 230;
/// How many distinct warnings are kept.
const KEPT: usize = 1000;

/// The reason for ignoring a pod that has succeeded or failed.
const FINISHED: &str = "finished";

/// Objects that are ignored for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Ignored {
    kind: String,
    count: usize,
    why: &'static str,
}

/// The inputs of a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Intake {
    read: BTreeMap<String, usize>,
    ignored: Vec<Ignored>,
    /// Distinct warnings, and how often each occurred.
    warnings: Vec<(String, usize)>,
    /// The number of further warnings that are not kept.
    further: usize,
    /// Notes about directories, whose other files are ignored.
    directories: Vec<String>,
}

impl Intake {
    /// Counts the objects that were read, and warns about references to missing ones. Call before the pods of
    /// controllers are created.
    pub(crate) fn count(&mut self, objects: &Objects) {
        for (kind, number) in &objects.read {
            let used = match *kind {
                "Pod" => number.saturating_sub(objects.finished_pods),
                _ => *number,
            };
            if used > 0 {
                *self.read.entry((*kind).to_owned()).or_default() += used;
            }
        }
        self.ignore("Pod", objects.finished_pods, FINISHED);
        for (kind, number) in &objects.skipped {
            let why = match &**kind {
                "Kustomization" => "not rendered: pass the output of kubectl kustomize",
                "DeviceTaintRule" => {
                    self.warn("DeviceTaintRule is ignored, as by default in Kubernetes 1.36");
                    "behind a feature gate"
                }
                kind if portolan_k8s::is_read(kind) => "kind of another API group",
                _ => "kind not used",
            };
            self.ignore(kind, *number, why);
        }
        for missing in &objects.missing {
            self.warn(&missing.to_string());
        }
    }

    /// Returns whether pods are ignored because they have finished.
    pub(crate) fn has_finished_pods(&self) -> bool {
        self.ignored.iter().any(|ignored| ignored.kind == "Pod" && ignored.why == FINISHED)
    }

    /// Counts objects that are ignored.
    pub(crate) fn ignore(&mut self, kind: &str, count: usize, why: &'static str) {
        if count == 0 {
            return;
        }
        let known = self.ignored.iter_mut().find(|known| known.kind == kind && known.why == why);
        match known {
            Some(known) => known.count += count,
            None => self.ignored.push(Ignored { kind: kind.to_owned(), count, why }),
        }
    }

    /// Moves objects that were counted as read to the ignored ones.
    pub(crate) fn unread(&mut self, kind: &str, count: usize, why: &'static str) {
        if let Some(read) = self.read.get_mut(kind) {
            *read = read.saturating_sub(count);
            if *read == 0 {
                self.read.remove(kind);
            }
        }
        self.ignore(kind, count, why);
    }

    /// Adds a note about the files of a directory.
    pub(crate) fn note(&mut self, note: String) {
        self.directories.push(note);
    }

    /// Adds a warning, unless it is known. Long names are shortened.
    pub(crate) fn warn(&mut self, warning: &str) {
        let warning = shortened(warning, LONGEST);
        if let Some(known) = self.warnings.iter_mut().find(|(known, _)| *known == warning) {
            known.1 += 1;
        } else if self.warnings.len() < KEPT {
            self.warnings.push((warning, 1));
        } else {
            self.further += 1;
        }
    }

    /// The first warning as an error, if there is one.
    pub(crate) fn refuse(&self) -> Result<(), CommandError> {
        let Some((first, _)) = self.warnings.first() else { return Ok(()) };
        let others = self.warnings.len() - 1 + self.further;
        let more = match others {
            0 => String::new(),
            _ => format!(" ({})", count(others, "more problem")),
        };
        Err(CommandError::Usage(format!("{first}{more}: correct the input, or omit --strict")))
    }

    /// The objects that were read and ignored, as one line; empty if there were no objects.
    pub(crate) fn line(&self) -> String {
        let mut line = String::new();
        if !self.read.is_empty() {
            let read = self.read.iter().map(|(kind, number)| format!("{number} {kind}"));
            let _ = write!(line, "read {}", read.collect::<Vec<_>>().join(", "));
        }
        if !self.ignored.is_empty() {
            let each = self.ignored.iter();
            let ignored = each.map(|it| format!("{} {} ({})", it.count, it.kind, it.why));
            let separator = if line.is_empty() { "" } else { "; " };
            let _ = write!(line, "{separator}ignored {}", ignored.collect::<Vec<_>>().join(", "));
        }
        line
    }

    /// Prints the line and the first warnings to standard error.
    pub(crate) fn print(&self) {
        let line = self.line();
        if !line.is_empty() {
            terminal::note(&line);
        }
        for note in &self.directories {
            terminal::note(note);
        }
        self.print_warnings();
    }

    /// Prints the first warnings to standard error, also before an error to which they may be the key.
    pub(crate) fn print_warnings(&self) {
        for (warning, times) in self.warnings.iter().take(SHOWN) {
            let times = match times {
                1 => String::new(),
                times => format!(" ({times} times)"),
            };
            terminal::warning(&format!("{warning}{times}"));
        }
        let more = self.warnings.len().saturating_sub(SHOWN) + self.further;
        if more > 0 {
            terminal::warning(&format!("and {more} more (--output json lists them)"));
        }
    }

    /// The field `input` of a JSON result.
    pub(crate) fn json(&self) -> Value {
        let warnings = self.warnings.iter();
        let warnings = warnings.map(|(what, times)| json!({ "what": what, "count": times }));
        json!({
            "read": self.read,
            "ignored": self.ignored,
            "warnings": warnings.collect::<Vec<_>>(),
            "further_warnings": self.further,
            "directories": self.directories,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_warnings_are_counted_once() {
        let mut intake = Intake::default();
        for warning in ["a", "b", "a"] {
            intake.warn(warning);
        }
        assert_eq!(intake.warnings, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
        let error = intake.refuse().expect_err("there are warnings").to_string();
        assert_eq!(error, "a (1 more problem): correct the input, or omit --strict");
    }

    #[test]
    fn taint_rules_are_ignored_with_a_warning() {
        let mut intake = Intake::default();
        let input = b"{\"apiVersion\": \"resource.k8s.io/v1beta2\", \"kind\": \"DeviceTaintRule\",
            \"metadata\": {\"name\": \"r\"}}";
        intake.count(&portolan_k8s::read(input).expect("a valid input"));
        assert_eq!(intake.line(), "ignored 1 DeviceTaintRule (behind a feature gate)");
        assert_eq!(intake.warnings.len(), 1);
    }

    #[test]
    fn what_was_read_and_ignored_is_one_line() {
        let mut intake = Intake::default();
        assert_eq!(intake.line(), "");
        let input =
            b"[{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"c\"}},
            {\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"n\"}}]";
        intake.count(&portolan_k8s::read(input).expect("a valid input"));
        assert_eq!(intake.line(), "read 1 Node; ignored 1 ConfigMap (kind not used)");
    }
}
