#!/usr/bin/env bash
# Every input of the fuzz corpus, and every past crash, on stable.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --release --test fuzz_corpus -- --nocapture
