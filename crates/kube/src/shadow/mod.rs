//! Compares the decisions of a running scheduler with portolan's, and writes nothing.
//!
//! ```text
//! API server ──▶ mirror ──▶ recorder ──▶ engine
//!                              │ each binding, with the version right before it
//!                              ▼
//!                            judge ──▶ judgements
//! ```
//!
//! The mirror submits one event at a time. Before it submits the event that places a pending pod on a node, the
//! recorder takes a version: the cluster with all earlier bindings and without this one. The judge evaluates the pod on
//! this version and gives a [`Verdict`].
//!
//! That version is not always the state that the other scheduler saw. A scheduler decides on pods one after the other
//! and binds them in parallel, so bindings become visible in a different order from the decisions, and its own watches
//! may have been ahead or behind. A pod whose node is not among the best ones is therefore judged again when the window
//! is over, on states that the scheduler may have seen ([`OtherState`]):
//!
//! 1. the pods bound within the window are counted in the order of the queue: by priority, then by the time since which
//!    they wait;
//! 2. versions from before recent changes other than bindings;
//! 3. the last bindings before it are left out, or the next ones after it put in, one or several at a time;
//! 4. nodes and other objects as they were at the end of the window.
//!
//! If the node is among the best ones on one of these states, the verdict is [`Verdict::Concurrent`], and the judgement
//! names the state. This shows that the decision can be explained, not that the scheduler saw this state. All feasible
//! nodes are scored on these states: samples ([`Verdict::Sampled`]) are considered only on the state right before the
//! binding.
//!
//! # Limits
//!
//! - A pod with volumes that wait for their first consumer is judged after its volumes were bound, which usually leaves
//!   one feasible node.
//! - The configuration must not have extenders, whose answers cannot be repeated.
//! - A pod that a failed attempt nominated to its node is not compared by score ([`Verdict::Nominated`]). Other
//!   nominations are ignored: kube-scheduler also writes the node that it has chosen before it binds volumes, so they
//!   may be the decision itself. A pod that another component nominated before its first attempt may thus disagree.
//! - At most 10,000 changes and bindings are kept. If there are more within the window, it ends earlier.
//! - A pod that first appears with a node, such as a static pod, is not judged; neither is one that was bound before
//!   the mirror was synced.
//! - A lost watch is followed by a list, in which bindings have no order. They are compared like bindings that were
//!   seen at once.
//!
//! | file | contents |
//! |---|---|
//! | `process` | the shadow's parts and their start and end |
//! | `recorder` | turns the mirror's events into bindings with their versions |
//! | `judge` | the thread that judges bindings and waits for windows to end |
//! | `other_states` | the states that the scheduler may have seen |
//! | `assess` | the feasible nodes of a pod with their scores |
//! | `verdict` | verdicts and judgements |
//! | `counts` | figures and metrics |
//! | `tests` | the recorder and the judge on single events |

mod assess;
mod counts;
mod judge;
mod other_states;
mod process;
mod recorder;
#[cfg(test)]
mod tests;
mod verdict;

pub use counts::ShadowFigures;
pub use process::{Shadow, ShadowConfig, ShadowError};
pub use verdict::{Judgement, NodeTotal, OtherState, Verdict};
