//! The reflectors against a server with scripted answers, and the rules for pods against a model.

mod failures;
mod history;
mod lists;
mod memory;
mod pods;
mod server;
mod submit;
mod whole;
