#!/usr/bin/env bash
# The loom models of the shipping source: their names and the executions explored. Then the mutants (ci/mutants.sh):
# with any one ordering or fence weakened, the model that is listed for it must fail.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom RUST_BACKTRACE=0
# Half the build time, and nothing that a model would notice.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0
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
    echo "$expected models are written and $listed were built: are they built with --cfg loom?"
    exit 1
fi

ran=0
for binary in "${binaries[@]}"; do
    if ! "$binary" --nocapture >"$scratch/run" 2>&1; then
        cat "$scratch/run"
        exit 1
    fi
    # Each model prints its executions, and fails by itself if there was only one.
    grep -oE 'MODEL [a-z_]+: [0-9]+ executions.*' "$scratch/run"
    ran=$((ran + $(grep -cE 'MODEL [a-z_]+: [0-9]+ executions' "$scratch/run")))
done
if [ "$ran" -ne "$expected" ]; then
    echo "$expected models are written and $ran ran"
    exit 1
fi
echo "$ran models passed"

bash ci/mutants.sh "${binaries[@]}"
