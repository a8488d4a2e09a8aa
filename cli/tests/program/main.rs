//! Runs the program and checks what it prints.
//!
//! One binary, because each binary links the whole library. `hostile` has one of its own: it replaces the allocator by
//! one that counts.

mod claims;
mod common;
mod compare;
mod configurations;
mod consolidate;
mod corpus;
mod dropped;
mod errors;
mod explain;
mod explain_answers;
mod explain_changes;
mod explain_property;
mod failures;
mod inputs;
mod inspect;
mod invalid;
mod live;
mod manners;
mod messages;
mod queued_replay;
mod replay;
mod replay_traces;
mod shadow;
mod what_if;
mod what_if_changes;
