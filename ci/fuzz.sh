#!/usr/bin/env bash
# Fuzzes each target for a while and prints its executions:
# ci/fuzz.sh [--seconds N] [TARGET...], 60 seconds and all targets unless said.
#
# Found inputs stay in fuzz/target/corpus and are gone on with the next time;
# what fails is in fuzz/artifacts, to be committed to fuzz/corpus once mended.
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
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
# As cargo-fuzz builds them, but with several codegen units, which takes a
# fraction of the time; `cargo +nightly fuzz` works as well.
flags="--cfg fuzzing -Cpasses=sancov-module -Zsanitizer=address"
for flag in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$flag"
done
RUSTFLAGS="$flags" cargo +nightly build --release --locked --manifest-path fuzz/Cargo.toml \
    --target "$host" --target-dir fuzz/target
failed=0
for target in "${targets[@]}"; do
    found=fuzz/target/corpus/$target
    log=fuzz/target/$target.log
    mkdir -p "$found" "fuzz/artifacts/$target"
    # Entropic schedules cost more than the runs themselves, with as many features as an engine has.
    options=(-max_total_time="$seconds" -print_final_stats=1 -timeout=120 -rss_limit_mb=4096 -entropic=0
        -artifact_prefix="fuzz/artifacts/$target/")
    if [ -f "fuzz/dictionaries/$target.dict" ]; then
        options+=(-dict="fuzz/dictionaries/$target.dict")
    fi
    result=passed
    if ! "fuzz/target/$host/release/$target" "${options[@]}" "$found" "fuzz/corpus/$target" \
        >"$log" 2>&1; then
        result=FAILED
        failed=1
        grep -A4 -m1 -E 'panicked at|^==[0-9]+==' "$log" | cut -c1-400 || true
        grep 'Test unit written to' "$log" || true
    fi
    count() { sed -n "s/^stat::$1: *//p" "$log"; }
    echo "$target: $result, $(count number_of_executed_units) executions," \
        "$(count new_units_added) new inputs, at most $(count peak_rss_mb) MB"
done
exit "$failed"
