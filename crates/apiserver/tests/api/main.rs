//! Tests of the server over HTTP.

mod bindings;
mod controllers;
mod faults;
mod kubelets;
mod lists;
mod load;
mod malformed;
mod objects;
mod resource_claims;
mod scheduling;
mod support;
mod updates;
mod watches;
