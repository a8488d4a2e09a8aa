//! Schedulers with the plugin on an engine.

mod live;
mod overcommit;
