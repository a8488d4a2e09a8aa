#!/usr/bin/env bash
# What publishes copy and what memory comes back, at full size: a million nodes
# and a million pods, where a debug build stops at 100,000.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --release --test cost_law --test memory --test shared_readers -- --nocapture
