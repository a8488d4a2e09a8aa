//! What a plugin says of a node (k8s.io/kube-scheduler/framework `Status`).

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
}
