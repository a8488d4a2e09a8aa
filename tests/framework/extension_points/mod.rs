//! Extension points: the order in which plugins are called, and the effect of their results.

mod binding_cycle;
mod nominated;
mod observers;
mod probe;
mod scheduling_cycle;
mod scores_and_names;
