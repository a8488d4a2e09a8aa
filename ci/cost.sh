#!/usr/bin/env bash
# Checks costs without a clock: how often a cycle calls plugins, and, for a million nodes and a million pods, what a
# publish costs and which memory is freed afterwards. A debug build stops at 40,000 nodes.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --release -p portolan --test cost_law --test freeing --test memory -- --nocapture
cargo test --release -p portolan --test threads shared_readers:: -- --nocapture
cargo test --release -p portolan --test scheduler steps:: -- --nocapture
