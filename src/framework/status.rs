//! A plugin's verdict on a node or a pod (k8s.io/kube-scheduler/framework `Status`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// A status code. Success is represented by the absence of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The plugin failed.
    Error,
    /// The pod does not fit; removing pods may help.
    Unschedulable,
    /// The pod does not fit, and removing pods does not help.
    UnschedulableAndUnresolvable,
    /// The pod has to wait.
    Wait,
    /// The plugin does not apply to this pod.
    Skip,
    /// The pod waits for an external component.
    Pending,
}

impl Code {
    /// Returns the code's name as kube-scheduler prints it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Error => "Error",
            Code::Unschedulable => "Unschedulable",
            Code::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
            Code::Wait => "Wait",
            Code::Skip => "Skip",
            Code::Pending => "Pending",
        }
    }

    /// Returns whether the code rejects the pod without a failure.
    #[must_use]
    pub fn is_rejection(self) -> bool {
        matches!(self, Code::Unschedulable | Code::UnschedulableAndUnresolvable | Code::Pending)
    }
}

/// Why a node or a pod was rejected, or why a plugin failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// The plugin that returned the status.
    pub plugin: &'static str,
    /// The reasons, in kube-scheduler's words.
    pub reasons: Vec<String>,
}

impl Status {
    /// Creates a status with one reason.
    pub fn new(code: Code, plugin: &'static str, reason: impl Into<String>) -> Status {
        Status { code, plugin, reasons: vec![reason.into()] }
    }

    /// Creates the status of a plugin that failed.
    pub fn error(plugin: &'static str, reason: impl Into<String>) -> Status {
        Status::new(Code::Error, plugin, reason)
    }

    /// Returns the reasons in one line.
    #[must_use]
    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }

    /// Converts a status that a step does not allow to an error that names the plugin and the step.
    pub(super) fn failed(self, plugin: &'static str, step: impl fmt::Display) -> Status {
        let cause = match self.code {
            // Kube-scheduler prints these statuses without a readable cause.
            Code::Wait | Code::Skip => format!("{} is not allowed here", self.code.as_str()),
            _ => self.message(),
        };
        Status::error(plugin, format!("{step}: {cause}"))
    }

    /// Returns a rejection with the plugin's name, and converts any other status to a failure of the step.
    pub(super) fn rejection_or(self, plugin: &'static str, step: impl fmt::Display) -> Status {
        match self.code.is_rejection() {
            true => Status { plugin, ..self },
            false => self.failed(plugin, step),
        }
    }
}

/// The code of a step's outcome.
pub(super) fn code<T>(outcome: &Result<T, Status>) -> Option<Code> {
    outcome.as_ref().err().map(|status| status.code)
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for Status {}

/// The number of nodes that gave each reason.
#[derive(Clone, Debug, Default)]
pub struct Reasons(Vec<(Cow<'static, str>, usize)>);

impl Reasons {
    /// Adds `nodes` nodes that gave this reason. Does nothing if `nodes` is 0.
    pub(crate) fn add(&mut self, reason: impl Into<Cow<'static, str>>, nodes: usize) {
        if nodes == 0 {
            return;
        }
        let reason = reason.into();
        // There are only a handful of reasons, whatever the number of nodes.
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += nodes,
            None => self.0.push((reason, nodes)),
        }
    }

    /// Returns the number of nodes by reason.
    #[doc(hidden)]
    #[must_use]
    pub fn into_map(self) -> BTreeMap<String, usize> {
        self.0.into_iter().map(|(reason, nodes)| (reason.into_owned(), nodes)).collect()
    }
}
