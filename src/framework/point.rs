//! The extension points of plugins.

use std::fmt;

/// An extension point, as configurations name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// Decides whether a pod may be queued at all.
    PreEnqueue,
    /// Decides which of two pods is tried first.
    QueueSort,
    /// Prepares a filter for a pod.
    PreFilter,
    /// Decides whether a node is feasible, with the filter that [`Plugin::pre_filter`](super::Plugin::pre_filter)
    /// returned. A plugin whose `pre_filter` is not overridden accepts every node.
    Filter,
    /// Tries to make a node feasible if none is.
    PostFilter,
    /// Prepares a score for a pod.
    PreScore,
    /// Rates a node.
    Score,
    /// Reserves what the pod needs on the chosen node.
    Reserve,
    /// Decides whether the pod may be bound, or has to wait.
    Permit,
    /// Prepares what the pod needs on its node.
    PreBind,
    /// Binds the pod.
    Bind,
    /// Observes that the pod is bound.
    PostBind,
}

impl Point {
    /// All extension points, in the order in which a pod passes them.
    pub const ALL: [Point; 12] = [
        Point::PreEnqueue,
        Point::QueueSort,
        Point::PreFilter,
        Point::Filter,
        Point::PostFilter,
        Point::PreScore,
        Point::Score,
        Point::Reserve,
        Point::Permit,
        Point::PreBind,
        Point::Bind,
        Point::PostBind,
    ];

    /// Returns the extension point's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Point::PreEnqueue => "PreEnqueue",
            Point::QueueSort => "QueueSort",
            Point::PreFilter => "PreFilter",
            Point::Filter => "Filter",
            Point::PostFilter => "PostFilter",
            Point::PreScore => "PreScore",
            Point::Score => "Score",
            Point::Reserve => "Reserve",
            Point::Permit => "Permit",
            Point::PreBind => "PreBind",
            Point::Bind => "Bind",
            Point::PostBind => "PostBind",
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
