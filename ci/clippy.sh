#!/usr/bin/env bash
# Runs clippy with all features and with none; every warning is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo clippy --version >/dev/null 2>&1; then
    echo "SKIPPED: clippy is not installed here (rustup component add clippy)"
    exit 0
fi
cargo clippy --workspace --all-targets --all-features -- -D warnings
cargo clippy -p portolan --no-default-features -- -D warnings
cargo clippy -p portolan-publish --no-default-features -- -D warnings
