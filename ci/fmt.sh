#!/usr/bin/env bash
# Checks that the code is formatted according to rustfmt.toml.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo fmt --version >/dev/null 2>&1; then
    echo "SKIPPED: rustfmt is not installed here (rustup component add rustfmt)"
    exit 0
fi
cargo fmt --all --check
