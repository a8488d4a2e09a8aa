#!/usr/bin/env bash
# Fuzzes each target for a while and prints its executions, by second of processor time, and the edges that it reaches
# before and after: ci/fuzz.sh [--seconds N] [TARGET...], 60 seconds and all targets unless said.
#
# Three quarters of the time go to a build without a sanitizer, which executes several times as much; what it finds the
# build with the address sanitizer starts from in the last quarter. PORTOLAN_FUZZ_BUILDS=plain (or address) builds and
# runs one of them alone.
#
# Found inputs stay in fuzz/target/corpus and are gone on with the next time; what fails is in fuzz/artifacts, to be
# committed to fuzz/corpus once mended.
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

# As cargo-fuzz builds them, but with several codegen units, which takes a fraction of the time; `cargo +nightly fuzz`
# works as well. Comparisons are traced in the slow build alone: a plain one would spend a third of its time on that.
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

# A build, a target and seconds.
fuzz() {
    local build=$1 target=$2 time=$3
    local found=fuzz/target/corpus/$target log=fuzz/target/$target-$build.log result=passed
    mkdir -p "$found" "fuzz/artifacts/$target"
    # Entropic schedules cost more than the runs themselves, with as many features as an engine has.
    local options=(-max_total_time="$time" -print_final_stats=1 -timeout=120 -rss_limit_mb=4096 -entropic=0
        -artifact_prefix="fuzz/artifacts/$target/")
    # Edges alone decide what the fast build keeps. With counts of edges up to half of an engine's inputs are new at
    # first, and each new one costs as much as several runs; fewer edges are found in the same time.
    if [ "$build" = plain ]; then
        options+=(-use_counters=0)
    fi
    if [ -f "fuzz/dictionaries/$target.dict" ]; then
        options+=(-dict="fuzz/dictionaries/$target.dict")
    fi
    # Many short sequences find more than a few long ones.
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
        "$(awk -v n="${executed:-0}" -v s="$used" 'BEGIN { printf "%d", n / (s > 0.01 ? s : 0.01) }') a second of processor time," \
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
