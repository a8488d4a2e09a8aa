//! The scheduler and `portolan-apiserver` beside a real kube-apiserver.
//!
//! The tests run if `KUBEBUILDER_ASSETS` names a directory with `etcd` and `kube-apiserver`, as for the tests of
//! controllers in Go (envtest). Otherwise they are skipped.
//!
//! - `answers`: the same requests to kube-apiserver and to the server in memory, which all other tests rely on, get the
//!   same answers.
//! - `scenarios`: whole schedulers on a real API server, with the permissions of `deploy/manifests/rbac.yaml` alone.

mod answers;
mod canonical;
mod cluster;
mod scenarios;
mod script;
