#!/usr/bin/env bash
# The stress tests of the cells, the log, the live index and the shared engine under the address sanitizer, which sees
# memory that is used after it was freed, and under the thread sanitizer, which sees accesses that nothing orders.
# ci/sanitizers.sh [address|thread|quick], default: both; quick is the address sanitizer over publication and the log.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "SKIPPED: sanitizers need the nightly toolchain (rustup toolchain install nightly)"
    exit 0
fi
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
case $host in
x86_64-unknown-linux-gnu | aarch64-unknown-linux-gnu | x86_64-apple-darwin | aarch64-apple-darwin) ;;
*)
    echo "SKIPPED: no sanitizers on $host"
    exit 0
    ;;
esac
# Some speed, so that threads meet.
export CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=1 CARGO_TARGET_DIR=target/sanitizers
chosen=${1:-both}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# A name, flags of cargo, and then tests of the library to leave out.
run() {
    local sanitizer=$1 build=$2 start=$SECONDS
    shift 2
    local skip=()
    for name in "$@"; do skip+=(--skip "$name"); done
    : >"$log"
    local all=("-p portolan-publish --lib -- ${skip[*]}")
    [ "$chosen" = quick ] || all+=("-p portolan --test threads --")
    for tests in "${all[@]}"; do
        # shellcheck disable=SC2086
        if ! RUSTFLAGS="-Zsanitizer=$sanitizer" cargo +nightly test $build --target "$host" $tests \
            >>"$log" 2>&1; then
            grep -E -A40 '^(WARNING|==[0-9]+==ERROR|error)|panicked at|FAILED' "$log" | head -120 || cat "$log"
            echo "$sanitizer sanitizer: FAILED"
            exit 1
        fi
    done
    local passed
    passed=$(grep -E '^test result: ok' "$log" | grep -oE '[0-9]+ passed' | awk '{sum += $1} END {print sum + 0}')
    if [ "$passed" -lt 20 ]; then
        cat "$log"
        echo "$sanitizer sanitizer: $passed tests ran: have names changed?"
        exit 1
    fi
    echo "$sanitizer sanitizer: $passed tests passed in $((SECONDS - start)) s"
}

if [ "$chosen" != thread ]; then
    # Some tests leak what a reader that never lets go would leak.
    export ASAN_OPTIONS=detect_leaks=0
    run address "" live::shards
fi
if [ "$chosen" = thread ] || [ "$chosen" = both ]; then
    # Exact only with a standard library that is instrumented, too: `Arc` orders its last drop by a fence else, and this
    # sanitizer does not see fences. None of ours orders an access by itself (rcu/protocol.md).
    if [ ! -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ] &&
        ! rustup component add rust-src --toolchain nightly >/dev/null 2>&1; then
        echo "SKIPPED: the thread sanitizer needs the standard library's source (rustup component add rust-src --toolchain nightly)"
        exit 0
    fi
    # left-right orders what it does by fences, and would be reported though it is right.
    run thread "-Zbuild-std" live::
fi
