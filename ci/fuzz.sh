#!/usr/bin/env bash
# Fuzzes each target for a while: ci/fuzz.sh [--seconds N], 60 unless said.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=60
if [ "${1:-}" = --seconds ]; then seconds=$2; fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "SKIPPED: cargo-fuzz is not installed here (cargo install cargo-fuzz); ci/fuzz-replay.sh replays the corpus"
    exit 0
fi
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "SKIPPED: fuzzing needs the nightly toolchain (rustup toolchain install nightly)"
    exit 0
fi
for target in $(cargo +nightly fuzz list); do
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -print_final_stats=1
done
