#!/usr/bin/env bash
# Every input of the fuzz corpus, and every past crash, on stable; with debug
# assertions, and on what the tests have built already.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --workspace --test fuzz_corpus -- --nocapture
