#!/usr/bin/env bash
# Measures the program and the rivals of the snapshot, and writes the tables of docs/benchmarks.md that are between
# markers, and docs/throughput.svg. Usage: ci/benchmarks.sh [--quick]. The machine should be idle: the page states how
# busy it is at the start.
#
# --quick measures small clusters without link-time optimization, and writes target/benchmarks.md and
# target/throughput.svg: it shows that every measurement works, and its figures mean little.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1-} in
--quick) ;;
'') export CARGO_PROFILE_RELEASE_LTO=thin ;;
*)
    echo "unknown argument $1: use --quick, or none"
    exit 1
    ;;
esac
# Returns the path of a program, whatever the target directory is.
build() {
    cargo build --release "${@:2}" --message-format json-render-diagnostics | python3 ci/benchmarks.py --executable "$1"
}
program=$(build portolan -p portolan-cli)
bench=$(build portolan-bench -p portolan-bench)
rivals=$(build rivals -p portolan --bench rivals)
python3 ci/benchmarks.py "$@" --program "$program" --bench "$bench" --rivals "$rivals"
