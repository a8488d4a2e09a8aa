#!/usr/bin/env bash
# Runs the loom models of the shipped source and prints their names and the number of executions explored. Then it runs
# the mutants (ci/mutants.sh): with any one ordering or fence weakened, the model listed for it must fail. With
# PORTOLAN_EXHAUSTIVE=1, models with Bound::ExhaustiveAtNight are explored exhaustively.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom RUST_BACKTRACE=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if ! cargo test --release -p loom-tests -p loom-tests-engine --no-run >"$scratch/build" 2>&1; then
    cat "$scratch/build"
    exit 1
fi
mapfile -t binaries < <(sed -n 's/^ *Executable tests\/.*(\(.*\))$/\1/p' "$scratch/build")

expected=$(grep -h '^#\[test\]' loom-tests/tests/*.rs loom-tests/engine/tests/*.rs | wc -l)
listed=0
for binary in "${binaries[@]}"; do
    listed=$((listed + $("$binary" --list | grep -c ': test$')))
done
if [ "$listed" -ne "$expected" ]; then
    echo "the source contains $expected models but $listed were built: check that they are built with --cfg loom"
    exit 1
fi

ran=0
for binary in "${binaries[@]}"; do
    if ! "$binary" --nocapture >"$scratch/run" 2>&1; then
        cat "$scratch/run"
        exit 1
    fi
    # Each model prints its number of executions, and fails if there was only one.
    grep -oE 'MODEL [a-z_]+: [0-9]+ executions.*' "$scratch/run"
    ran=$((ran + $(grep -cE 'MODEL [a-z_]+: [0-9]+ executions' "$scratch/run")))
done
if [ "$ran" -ne "$expected" ]; then
    echo "the source contains $expected models but only $ran ran"
    exit 1
fi
echo "$ran models passed"

bash ci/mutants.sh "${binaries[@]}"
