//! Runs the program and checks what it prints.
//!
//! One binary, because each binary links the whole library. `hostile` has one of its own: it replaces the allocator by
//! one that counts.

mod common;
mod compare;
mod corpus;
mod explain_property;
mod inputs;
mod live;
mod manners;
mod messages;
mod names;
mod pages;
mod queued_replay;
mod replay;
mod replay_traces;
mod running;
mod serve;
mod serve_access;
mod serve_replay;
mod shadow;
mod what_if;
