//! Kubernetes JSON and YAML in.
