#!/usr/bin/env bash
# Runs Miri over all code that uses `unsafe` or shares memory: the cell, retired versions and the rival cells with many
# seeds, each with a different interleaving and weak-memory behaviour, and the pod index, lanes and tables of snapshots.
# Usage: ci/miri.sh [SEEDS], by default 8; `ci/miri.sh quick` runs the cell, the retired versions and the log with one
# seed.
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=${1:-8}
quick=
if [ "$seeds" = quick ]; then quick=1 seeds=1; fi
if ! cargo +nightly miri --version >/dev/null 2>&1; then
    if ! rustup component add miri rust-src --toolchain nightly >/dev/null 2>&1; then
        echo "SKIPPED: miri cannot be installed here (rustup component add miri rust-src --toolchain nightly)"
        exit 0
    fi
fi
export CARGO_TARGET_DIR=target/miri PROPTEST_CASES=1
# Isolation is disabled because proptest accesses its directory; the engine's own tests read no clock.
base="-Zmiri-disable-isolation"

# Arguments: a name, a crate, Miri flags, and then arguments of cargo and test filters.
run() {
    local what=$1 crate=$2 flags=$3 log=$logs/$BASHPID start=$SECONDS
    shift 3
    if ! MIRIFLAGS="$base $flags" cargo +nightly miri test -p "$crate" "$@" >"$log" 2>&1; then
        cat "$log"
        exit 1
    fi
    local passed
    passed=$(grep -E '^test result: ok' "$log" | grep -oE '[0-9]+ passed' | awk '{sum += $1} END {print sum + 0}')
    if [ "$passed" = 0 ]; then
        cat "$log"
        echo "$what: no test ran: check whether tests were renamed"
        exit 1
    fi
    echo "$what: $passed tests passed in $((SECONDS - start)) s"
}
logs=$(mktemp -d)
cell=
# A failed run must not leave Miri running. The run in the background has a process group of its own.
trap '[ -z "$cell" ] || kill -- "-$cell" 2>/dev/null || true; rm -rf "$logs"' EXIT

many="-Zmiri-many-seeds=0..$seeds"
# Strict provenance is enabled because no integer is ever converted to a pointer. No memory may be leaked. This run takes
# longest, on one core, so the next two run beside it.
set -m
run "the cell, $seeds seeds" portolan-publish "-Zmiri-strict-provenance $many" --lib -- \
    promises:: rcu::tests signal --skip a_forgotten_reader &
cell=$!
set +m
# The tests leak readers and handles deliberately.
run "leaked readers and handles" portolan-publish "-Zmiri-strict-provenance -Zmiri-ignore-leaks" --lib -- retired a_forgotten_reader
run "tickets and the token" portolan-publish "" --lib -- log::ticket log::token
wait "$cell"
cell=
[ -z "$quick" ] || exit 0
# The random tests of trees and tables are excluded because they take tens of minutes under Miri.
run "snapshots" portolan "-Zmiri-strict-provenance" --lib -- \
    snapshot::pod_index snapshot::hash_index::tests::a_million snapshot::lane framework::dispatch \
    snapshot::table::tests::a_number snapshot::table::tests::neighbours --skip every_held_version_finds
