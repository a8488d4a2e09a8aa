#!/usr/bin/env bash
# Runs clippy; every warning is an error. `ci/clippy.sh all` checks all features at once. Without an argument, the
# workspace is checked with the features that its tests use, the program as it is built by default, and the libraries
# without features.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo clippy --version >/dev/null 2>&1; then
    echo "SKIPPED: clippy is not installed here (rustup component add clippy)"
    exit 0
fi
if [ "${1:-}" = all ]; then
    cargo clippy --workspace --all-targets --all-features -- -D warnings
    exit
fi
cargo clippy --workspace --all-targets -- -D warnings
cargo clippy -p portolan-cli -- -D warnings
cargo clippy -p portolan -p portolan-publish --no-default-features -- -D warnings
