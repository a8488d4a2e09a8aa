#!/usr/bin/env bash
# Builds the documentation; undocumented public items and broken links are errors.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps
RUSTDOCFLAGS="-D warnings" cargo doc -p portolan -p portolan-publish --no-deps
