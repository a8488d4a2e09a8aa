#!/usr/bin/env bash
# What publishes copy and what memory comes back, at full size: a million nodes
# and a million pods, where a debug build stops at 100,000.
set -euo pipefail
cd "$(dirname "$0")/.."
# Half the build time, and the same counts.
export CARGO_TARGET_DIR=target/cost CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
cargo test --release -p portolan --test cost_law --test freeing --test memory -- --nocapture
cargo test --release -p portolan --test threads shared_readers:: -- --nocapture
