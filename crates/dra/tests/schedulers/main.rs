//! Schedulers with the plugin on an engine.

mod forks;
mod live;
mod overcommit;
