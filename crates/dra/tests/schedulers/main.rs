//! Schedulers with the plugin on an engine.

mod forks;
mod hints;
mod live;
mod overcommit;
