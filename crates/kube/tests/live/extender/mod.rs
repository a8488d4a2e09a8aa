//! Extenders over real sockets: the client against services that misbehave, and against portolan's own.

mod client;
mod pair;
mod service;
mod start;
mod stub;
mod tls;
mod world;
