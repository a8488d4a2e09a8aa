#!/usr/bin/env bash
# The loom models of the shipping source: their names, the executions explored.
# Then the mutations: with an ordering or a fence weakened, a model must fail.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom
expected=$(grep -c '^#\[test\]' loom-tests/tests/*.rs | awk -F: '{sum += $2} END {print sum}')
run() {
    cargo test --release -p loom-tests -- --nocapture --test-threads 1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run >"$log" 2>&1 || { cat "$log"; echo "a model failed"; exit 1; }
grep '^MODEL' "$log" || grep -o 'MODEL .* executions' "$log"
ran=$(grep -c 'MODEL .* executions' "$log")
if [ "$ran" != "$expected" ]; then
    echo "$ran models ran, $expected are there"
    exit 1
fi
echo "$ran models passed"
# Mutants that a model is known to kill; the rest of the list is a later step.
for mutant in token-no-second-look ticket-before-publish signal-wait-fence signal-set-fence token-submit-fence token-release-fence; do
    if ! grep -rq "\"$mutant\"" src; then
        echo "there is no mutation $mutant in the source"
        exit 1
    fi
    if PORTOLAN_MUTATION=$mutant timeout 120 cargo test --release -p loom-tests -- --test-threads 1 >"$log" 2>&1; then
        echo "MUTANT $mutant survives"
        survivors="${survivors:-} $mutant"
    else
        echo "MUTANT $mutant killed"
    fi
done
if [ -n "${survivors:-}" ]; then
    echo "no model bites on:$survivors"
    exit 1
fi
