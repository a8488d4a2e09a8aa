//! What makes an engine one of Gödel's.
//!
//! The setting hangs off the root, behind one pointer that is null while
//! [`Config::godel`](crate::Config::godel) is not given: so a fork counts pods as its
//! base does, and an engine without it copies, counts and looks at nothing more.

use crate::model::Name;

/// How pods in Gödel's states count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GodelConfig {
    /// What pods name as their scheduler. An assumed pod counts where it names this,
    /// `default-scheduler` or nothing.
    pub scheduler_type: Name,
}

impl GodelConfig {
    /// For pods that name this scheduler.
    pub fn new(scheduler_type: impl Into<Name>) -> GodelConfig {
        GodelConfig { scheduler_type: scheduler_type.into() }
    }
}
