#!/usr/bin/env bash
# Replays every input of the fuzz corpus and every past crash on stable Rust, with debug assertions and the artifacts
# that the tests have already built.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --workspace --test fuzz_corpus -- --nocapture
