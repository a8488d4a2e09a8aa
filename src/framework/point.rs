//! Where plugins are asked.

use std::fmt;

/// An extension point, as configurations name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// May the pod queue at all?
    PreEnqueue,
    /// Which of two pods goes first?
    QueueSort,
    /// What is there to filter for this pod?
    PreFilter,
    /// Will this node do?
    Filter,
    /// No node will do: can that be changed?
    PostFilter,
    /// What is there to score for this pod?
    PreScore,
    /// How good is this node?
    Score,
    /// The pod is to go to this node: set aside what it needs.
    Reserve,
    /// May the pod be bound, or is it to wait?
    Permit,
    /// Make ready what the pod needs on its node.
    PreBind,
    /// Bind the pod.
    Bind,
    /// The pod is bound.
    PostBind,
}

impl Point {
    /// All points in the order of a pod's way.
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

    /// Its name.
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
