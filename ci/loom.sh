#!/usr/bin/env bash
# The loom models of the shipping source: their names and the executions explored. Then the mutants: with any one
# named ordering or fence weakened (see src/sync.rs), at least one model must fail. Names of mutants come from the
# source, so that a new one can't be forgotten here.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom RUST_BACKTRACE=0
# Half the build time, and nothing that a model would notice.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if ! cargo test --release -p loom-tests --no-run >"$scratch/build" 2>&1; then
    cat "$scratch/build"
    exit 1
fi
mapfile -t binaries < <(sed -n 's/^ *Executable tests\/.*(\(.*\))$/\1/p' "$scratch/build")

expected=$(grep -h '^#\[test\]' loom-tests/tests/*.rs | wc -l)
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

mapfile -t mutants < <(grep -rhoE '(ordering|fenced|mutated)!\("[a-z-]+"' src | grep -oE '"[a-z-]+"' | tr -d '"' | sort -u)
if [ "${#mutants[@]}" -eq 0 ]; then
    echo "no mutant is named in src: has src/sync.rs changed?"
    exit 1
fi
survivors=0
for mutant in "${mutants[@]}"; do
    verdict=survives
    for binary in "${binaries[@]}"; do
        status=0
        { PORTOLAN_MUTATION=$mutant timeout 300 "$binary"; } >/dev/null 2>&1 || status=$?
        if [ "$status" -eq 124 ]; then
            # Not a kill: a model that neither passes nor fails proves nothing. So long for machines with other work.
            verdict="is undecided after 300 s"
        elif [ "$status" -ne 0 ]; then
            verdict="is killed by $(basename "$binary" | sed 's/-[0-9a-f]*$//')"
            break
        fi
    done
    echo "MUTANT $mutant $verdict"
    case $verdict in
    "is killed"*) ;;
    *) survivors=$((survivors + 1)) ;;
    esac
done
if [ "$survivors" -ne 0 ]; then
    echo "$survivors mutants are not killed: add a model that bites, or take the ordering out"
    exit 1
fi
echo "${#mutants[@]} mutants killed"
