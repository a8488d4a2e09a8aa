#!/usr/bin/env bash
# Compares portolan's answers with golden vectors, which contain kube-scheduler's answers. `ci/vectors.sh DIR` compares
# the vectors in DIR; by default those in tests/vectors, and the recorded ones in ../shared/vectors if that directory
# exists. portolan-bench is built in release mode, unless PORTOLAN_BENCH is the path of another build.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."
shopt -s nullglob
if [ -n "${PORTOLAN_BENCH:-}" ]; then bench=("$PORTOLAN_BENCH"); else bench=(cargo run --release --quiet -p portolan-bench --); fi

# Compares every file of a directory; further arguments are options of `conformance`. Recordings of writes (live.*) run
# a scheduler against an API server in memory.
compare() {
    local files=("$1"/*.jsonl "$1"/*.jsonl.gz)
    if [ ${#files[@]} = 0 ]; then
        echo "$1: no vectors found (*.jsonl, *.jsonl.gz)"
        return 1
    fi
    "${bench[@]}" conformance "${@:2}" "${files[@]}"
}

case $# in
    0)
        compare tests/vectors --strict
        recorded=../shared/vectors
        if [ -d "$recorded" ]; then
            compare "$recorded"
        else
            echo "SKIPPED: the recorded answers of kube-scheduler are missing ($recorded)"
        fi
        ;;
    1)
        chosen=$(cd "$caller" && cd "$1" && pwd)
        compare "$chosen"
        ;;
    *)
        echo "usage: ci/vectors.sh [DIR]"
        exit 2
        ;;
esac
