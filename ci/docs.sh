#!/usr/bin/env bash
# Builds the documentation; undocumented public items and broken links are errors. `ci/docs.sh all` also builds that of
# the program, and that of the libraries without features.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTDOCFLAGS="-D warnings"
libraries=(-p portolan -p portolan-publish -p portolan-k8s -p portolan-kube -p portolan-apiserver)
cargo doc "${libraries[@]}" --all-features --no-deps
if [ "${1:-}" = all ]; then
    # The pages of the program and of the library are written to the same directory, so they are built one after the
    # other.
    cargo doc -p portolan-cli --bin portolan --all-features --no-deps
    cargo doc -p portolan-testkit -p loom-tests -p loom-tests-engine --all-features --no-deps
    cargo doc -p portolan -p portolan-publish -p portolan-k8s --no-deps
fi
