//! What a plugin says of a node, or of a pod (k8s.io/kube-scheduler/framework
//! `Status`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// A status code. Success has no status at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The plugin failed.
    Error,
    /// The pod does not fit; removing pods may help.
    Unschedulable,
    /// The pod does not fit, and removing pods does not help.
    UnschedulableAndUnresolvable,
    /// The pod is to wait.
    Wait,
    /// The plugin has nothing to say of this pod.
    Skip,
    /// The pod waits for something outside.
    Pending,
}

impl Code {
    /// As kube-scheduler prints it.
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

    /// Whether the pod is turned away, and nothing has failed.
    #[must_use]
    pub fn is_rejection(self) -> bool {
        matches!(self, Code::Unschedulable | Code::UnschedulableAndUnresolvable | Code::Pending)
    }
}

/// Why a node, or a pod, was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// Which plugin said so.
    pub plugin: &'static str,
    /// Its reasons, in kube-scheduler's words.
    pub reasons: Vec<String>,
}

impl Status {
    /// A status with one reason.
    pub fn new(code: Code, plugin: &'static str, reason: impl Into<String>) -> Status {
        Status { code, plugin, reasons: vec![reason.into()] }
    }

    /// A plugin failed.
    pub fn error(plugin: &'static str, reason: impl Into<String>) -> Status {
        Status::new(Code::Error, plugin, reason)
    }

    /// Its reasons in one line.
    #[must_use]
    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }

    /// What comes of a status that a step of the framework does not allow: an
    /// error that says which step of which plugin it was.
    pub(super) fn failed(self, plugin: &'static str, step: impl fmt::Display) -> Status {
        let cause = match self.code {
            // Kube-scheduler prints no cause that can be read here.
            Code::Wait | Code::Skip => format!("{} is no answer here", self.code.as_str()),
            _ => self.message(),
        };
        Status::error(plugin, format!("{step}: {cause}"))
    }

    /// A rejection as it is; anything else as a failure of the step.
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

/// How many nodes gave each reason.
#[derive(Clone, Debug, Default)]
pub struct Reasons(Vec<(Cow<'static, str>, usize)>);

impl Reasons {
    /// So many nodes more gave this reason; none change nothing.
    pub fn add(&mut self, reason: impl Into<Cow<'static, str>>, nodes: usize) {
        if nodes == 0 {
            return;
        }
        let reason = reason.into();
        // There are a handful of them, whatever the number of nodes.
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += nodes,
            None => self.0.push((reason, nodes)),
        }
    }

    /// By reason.
    #[must_use]
    pub fn into_map(self) -> BTreeMap<String, usize> {
        self.0.into_iter().map(|(reason, nodes)| (reason.into_owned(), nodes)).collect()
    }
}
