#!/usr/bin/env bash
# Builds the documentation; undocumented public items and broken links are errors.
set -euo pipefail
cd "$(dirname "$0")/.."
# The program's pages and the library's have the same place, so they are built one after the other.
RUSTDOCFLAGS="-D warnings" cargo doc -p portolan-cli --bin portolan --all-features --no-deps
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps
RUSTDOCFLAGS="-D warnings" cargo doc -p portolan -p portolan-publish -p portolan-k8s --no-deps
