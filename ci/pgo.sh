#!/usr/bin/env bash
# Builds the program for a release: optimized across crates (LTO) and with a profile of training runs (PGO), which are
# the program's main jobs: a replay of its own workload, and a cluster in memory with all writes.
#
# Needs an llvm-profdata no older than the compiler's LLVM: `rustup component add llvm-tools`, or one in PATH. The program is
# target/pgo/used/dist/portolan. With --bench, builds portolan-bench instead, trained by its own runs, to measure what
# this is worth.
set -euo pipefail
cd "$(dirname "$0")/.."
package=(--package portolan-cli --features cluster --bin portolan)
program=portolan
if [ "${1:-}" = --bench ]; then
    package=(--package portolan-bench)
    program=portolan-bench
fi
folder=$PWD/target/pgo
rm -rf "$folder/profiles" && mkdir -p "$folder/profiles"
profdata=$(find "$(rustc --print sysroot)" -name llvm-profdata -type f | head -n 1)
profdata=${profdata:-llvm-profdata}
# Before the first build, which takes long.
llvm=$(rustc --version --verbose | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
if ! "$profdata" --version | grep -Eq "LLVM version ($llvm|$((llvm + 1)))\."; then
    echo "$profdata does not read the profiles of LLVM $llvm: rustup component add llvm-tools" >&2
    exit 1
fi

build() {
    RUSTFLAGS="$1" cargo build --profile dist --locked "${package[@]}" --target-dir "$2"
}

train() {
    local run=("$folder/made/dist/$program")
    if [ "$program" = portolan-bench ]; then
        "${run[@]}" sched --workload basic,distinct,affinity,spread --nodes 5000
        "${run[@]}" sched --workload basic,distinct,affinity --nodes 5000 --batch 32
        "${run[@]}" cache --nodes 5000
        return
    fi
    "${run[@]}" replay
    "${run[@]}" demo --nodes 500 --pods 4000
}

build "-Cprofile-generate=$folder/profiles" "$folder/made"
train
"$profdata" merge -o "$folder/merged.profdata" "$folder/profiles"
build "-Cprofile-use=$folder/merged.profdata" "$folder/used"
echo "$folder/used/dist/$program"
