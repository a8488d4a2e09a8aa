#!/usr/bin/env bash
# Lets cargo-mutants change the source, one place at a time, and runs the unit tests of the file that it changed. A
# mutant that they do not notice must be listed in docs/mutants.md with a reason, or this fails; so must no mutant be
# listed that is noticed or does not exist any more, once its file has been run whole.
#
# ci/machine-mutants.sh [FILE...]: the files below unless said, in turn, until PORTOLAN_MUTANT_MINUTES (90) are over; the
# next run begins with the file after the last one that was run whole.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo mutants --version >/dev/null 2>&1; then
    echo "SKIPPED: cargo-mutants is not installed (cargo install --locked cargo-mutants)"
    exit 0
fi
# What readers and the writer share without locks, the indexes, and the queue's orders.
examined=('crates/publish/src/**/*.rs' src/snapshot/{hints,departures,tree,hash_index}.rs
    'src/scheduler/queue/*.rs')
results=target/mutants
mkdir -p "$results"
ends=$((SECONDS + 60 * ${PORTOLAN_MUTANT_MINUTES:-90}))
# Mutants are made in a copy of the tree, whose dependencies are built here once and kept. Without debug information a
# mutant costs the build of the library's tests and little else.
export CARGO_TARGET_DIR=$PWD/$results/build CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0 PROPTEST_CASES=32

# What cargo runs for mutants of a file: their own unit tests, and for indexes the model of a whole engine.
tests_of() {
    case $1 in
    crates/publish/*) echo "-p portolan-publish --lib" ;;
    src/snapshot/*) echo "-p portolan --lib --test engine -- snapshot:: state:: an_engine_does" ;;
    src/scheduler/queue/*)
        # Of the integration tests only queue and queue_model.
        echo "-p portolan --lib --test scheduler --" \
            --skip={cycles,dispatch,gangs,metrics,queue_feed,schedulers,scheduling_loop}::
        ;;
    *) echo "-p portolan --lib" ;;
    esac
}

# Compares survivors with the list: a file, its results, and whether it was run whole.
compare() {
    python3 - "$@" <<'PY'
import pathlib, re, sys

file, out, is_whole = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3] == "whole"

def read(name):
    path = out / name
    lines = path.read_text().splitlines() if path.exists() else []
    # By function and mutation: lines move.
    return [re.sub(r"^[^:]+:\d+:\d+: ", "", line) for line in lines if line]

survivors = set(read("missed.txt"))
# Tests that never end are a way to notice, as a loop that takes no more steps is.
caught = read("caught.txt") + read("timeout.txt")
listed = {}
for line in pathlib.Path("docs/mutants.md").read_text().splitlines():
    cells = [cell.strip() for cell in line.replace(r"\|", "\0").strip("|").split("|")]
    if line.startswith("|") and len(cells) == 3 and cells[0] == f"`{file}`":
        listed[cells[1].strip("`").replace("\0", "|")] = cells[2]
problems = [f"{mutant}: survives and is not listed" for mutant in sorted(survivors - listed.keys())]
problems += [f"{mutant}: is listed without a reason" for mutant, why in listed.items() if not why]
if is_whole:
    problems += [f"{mutant}: is listed, and is noticed or gone" for mutant in sorted(listed.keys() - survivors)]
print(f"{file}: {len(caught)} mutants noticed, {len(survivors)} not, {len(listed)} listed")
for problem in problems:
    print(f"  {problem}")
sys.exit(bool(problems))
PY
}

if [ $# -gt 0 ]; then
    files=("$@")
else
    mapfile -t files < <(cargo mutants --list-files "${examined[@]/#/--file=}")
    last=$(cat "$results/last" 2>/dev/null || true)
    for at in "${!files[@]}"; do
        if [ "${files[at]}" = "$last" ]; then
            files=("${files[@]:at+1}" "${files[@]:0:at+1}")
            break
        fi
    done
fi

failed=0
for file in "${files[@]}"; do
    left=$((ends - SECONDS))
    if [ "$left" -le 0 ]; then
        echo "the time is over before $file"
        break
    fi
    name=${file//\//-}
    rm -rf "${results:?}/$name"
    status=0
    # shellcheck disable=SC2046
    timeout --kill-after=60 "$left" cargo mutants --no-shuffle --file "$file" --output "$results/$name" \
        -- $(tests_of "$file") >"$results/$name.log" 2>&1 || status=$?
    case $status in
    # 2 and 3: some mutants survived or timed out.
    0 | 2 | 3)
        compare "$file" "$results/$name/mutants.out" whole || failed=1
        [ $# -gt 0 ] || echo "$file" >"$results/last"
        ;;
    124 | 137)
        compare "$file" "$results/$name/mutants.out" partly || failed=1
        echo "the time is over within $file"
        break
        ;;
    *)
        tail -20 "$results/$name.log"
        echo "$file: cargo-mutants failed"
        failed=1
        ;;
    esac
done
exit "$failed"
