#!/usr/bin/env bash
# Fuzzes each target and prints the number of executions, the executions per second of processor time, and the number of
# edges covered before and after. Usage: ci/fuzz.sh [--seconds N] [TARGET...]; the defaults are 60 seconds and all
# targets.
#
# A build without a sanitizer gets three quarters of the time and executes several times as many inputs. A build with
# the address sanitizer starts from its findings in the last quarter. Set PORTOLAN_FUZZ_BUILDS=plain (or address) to
# build and run only one of them.
#
# New inputs are kept in fuzz/target/corpus and reused by the next run. Failing inputs are stored in fuzz/artifacts;
# commit them to fuzz/corpus once the defect is fixed.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=60
if [ "${1:-}" = --seconds ]; then
    seconds=$2
    shift 2
fi
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    for file in fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "SKIPPED: fuzzing needs the nightly toolchain (rustup toolchain install nightly); ci/fuzz-replay.sh replays the corpus"
    exit 0
fi
read -ra builds <<<"${PORTOLAN_FUZZ_BUILDS:-plain address}"
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
bins=()
for target in "${targets[@]}"; do bins+=(--bin "$target"); done

# The flags are those of cargo-fuzz, but with several codegen units, which takes a fraction of the time; `cargo +nightly
# fuzz` works as well. Only the slow build traces comparisons: a plain build would spend a third of its time on them.
build() {
    local flags="--cfg fuzzing -Cpasses=sancov-module" coverage=(level=3 inline-8bit-counters pc-table)
    if [ "$1" = address ]; then
        flags+=" -Zsanitizer=address"
        coverage=(level=4 inline-8bit-counters pc-table trace-compares)
    fi
    for flag in "${coverage[@]}"; do flags+=" -Cllvm-args=-sanitizer-coverage-$flag"; done
    RUSTFLAGS="$flags" cargo +nightly build --release --locked --manifest-path fuzz/Cargo.toml \
        --target "$host" --target-dir "fuzz/target/$1" "${bins[@]}"
}

# Arguments: a build, a target and a number of seconds.
fuzz() {
    local build=$1 target=$2 time=$3
    local found=fuzz/target/corpus/$target log=fuzz/target/$target-$build.log result=passed
    mkdir -p "$found" "fuzz/artifacts/$target"
    # With as many features as an engine has, entropic scheduling costs more than the runs themselves.
    local options=(-max_total_time="$time" -print_final_stats=1 -timeout=120 -rss_limit_mb=4096 -entropic=0
        -artifact_prefix="fuzz/artifacts/$target/")
    # In the fast build, an input is kept only if it covers a new edge. If counts of edges mattered as well, up to half
    # of an engine's inputs would be new at first, each would cost as much as several runs, and fewer edges would be
    # covered in the same time.
    if [ "$build" = plain ]; then
        options+=(-use_counters=0)
    fi
    if [ -f "fuzz/dictionaries/$target.dict" ]; then
        options+=(-dict="fuzz/dictionaries/$target.dict")
    fi
    # Many short sequences find more defects than a few long ones.
    case $target in
    state) options+=(-max_len=768) ;;
    scheduler) options+=(-max_len=192) ;;
    esac
    local TIMEFORMAT=%U used
    if ! used=$({ time "fuzz/target/$build/$host/release/$target" "${options[@]}" "$found" "fuzz/corpus/$target" \
        >"$log" 2>&1; } 2>&1); then
        result=FAILED
        failed=1
        grep -A4 -m1 -E 'panicked at|^==[0-9]+==' "$log" | cut -c1-400 || true
        grep 'Test unit written to' "$log" || true
    fi
    count() { sed -n "s/^stat::$1: *//p" "$log"; }
    local executed edges
    executed=$(count number_of_executed_units)
    edges=$(sed -n 's/^.* cov: \([0-9]*\) .*$/\1/p' "$log" | sed -n '1p;$p' | paste -sd' ')
    echo "$target, $build: $result, ${executed:-0} executions," \
        "$(awk -v n="${executed:-0}" -v s="$used" 'BEGIN { printf "%d", n / (s > 0.01 ? s : 0.01) }') per second of processor time," \
        "edges ${edges/ / to }, $(count new_units_added) new inputs, at most $(count peak_rss_mb) MB"
}

for build in "${builds[@]}"; do build "$build"; done
failed=0
for target in "${targets[@]}"; do
    for build in "${builds[@]}"; do
        share=$seconds
        if [ ${#builds[@]} -gt 1 ]; then
            share=$((seconds / 4))
            [ "$build" = plain ] && share=$((seconds - seconds / 4))
        fi
        fuzz "$build" "$target" "$((share > 0 ? share : 1))"
    done
done
exit "$failed"
