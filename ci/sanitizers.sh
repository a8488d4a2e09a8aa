#!/usr/bin/env bash
# Runs the stress tests of the cells, the log and the shared engine under the address sanitizer, which
# detects uses of freed memory, and under the thread sanitizer, which detects data races. Usage: ci/sanitizers.sh
# [address|thread|quick]; by default both run, and quick runs the address sanitizer over publication and the log.
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
    echo "SKIPPED: sanitizers are not available on $host"
    exit 0
    ;;
esac
# Optimization makes the code fast enough for threads to overlap.
export CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=1 CARGO_TARGET_DIR=target/sanitizers
chosen=${1:-both}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Arguments: a sanitizer, flags of cargo, and the tests of the library to skip.
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
        echo "$sanitizer sanitizer: only $passed tests ran: check whether tests were renamed"
        exit 1
    fi
    echo "$sanitizer sanitizer: $passed tests passed in $((SECONDS - start)) s"
}

if [ "$chosen" != thread ]; then
    # Some tests leak memory deliberately, as a reader that is never dropped would.
    export ASAN_OPTIONS=detect_leaks=0
fi
if [ "$chosen" = thread ] || [ "$chosen" = both ]; then
    # The thread sanitizer is exact only with an instrumented standard library: `Arc` otherwise orders its last drop by
    # a fence, and this sanitizer does not see fences. None of the engine's own accesses is ordered by a fence alone
    # (rcu/protocol.md).
    if [ ! -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ] &&
        ! rustup component add rust-src --toolchain nightly >/dev/null 2>&1; then
        echo "SKIPPED: the thread sanitizer needs the standard library's source (rustup component add rust-src --toolchain nightly)"
        exit 0
    fi
fi
