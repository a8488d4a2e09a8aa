#!/usr/bin/env bash
# Runs cargo-mutants, which changes the source in one place at a time and runs the unit tests of the changed file. A
# mutant that survives must be listed in docs/verification.md with a reason. Conversely, once a file has been run completely,
# no mutant may be listed that is caught or no longer exists.
#
# Usage: ci/machine-mutants.sh [FILE...]. By default the files below are run in turn until PORTOLAN_MUTANT_MINUTES (90)
# have passed; the next run starts with the file after the last one that was run completely.
#
# No test notices these changes made by hand:
#   defects, in src/snapshot/draft/bulk.rs: `place_many` does not count the child slots of other threads; `run` takes more
#     than `MAX_NUMBERS` numbers
#   cost alone: `grafts` in src/snapshot/plan.rs never sets `is_one_by_one` or does not compare layouts; `chosen` examines
#     one more chunk; `commit` in src/scheduler/batch.rs names no version; `number_templates` and `count_many` do not begin
#     the generation of each pod
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo mutants --version >/dev/null 2>&1; then
    echo "SKIPPED: cargo-mutants is not installed here (cargo install --locked cargo-mutants)"
    exit 0
fi
# The lock-free data shared by readers and the writer, the indexes, and the orders of the queue.
examined=('crates/publish/src/**/*.rs' src/snapshot/{pod_index,departures,tree,hash_index}.rs
    'src/scheduler/queue/*.rs')
results=target/mutants
mkdir -p "$results"
ends=$((SECONDS + 60 * ${PORTOLAN_MUTANT_MINUTES:-90}))
# Mutants are built in a copy of the tree; the dependencies are built here once and kept. Without debug information, a
# mutant costs little more than building the library's tests.
export CARGO_TARGET_DIR=$PWD/$results/build CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0 PROPTEST_CASES=32

# Prints the tests to run for the mutants of a file: its own unit tests and, for indexes, the model of a complete
# engine.
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

# Compares the survivors with the list. Arguments: a file, its results, and whether it was run completely.
compare() {
    python3 - "$@" <<'PY'
import pathlib, re, sys

file, out, is_whole = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3] == "whole"

def read(name):
    path = out / name
    lines = path.read_text().splitlines() if path.exists() else []
    # Mutants are identified by function and mutation, because line numbers change.
    return [re.sub(r"^[^:]+:\d+:\d+: ", "", line) for line in lines if line]

survivors = set(read("missed.txt"))
# A test that never ends also catches a mutant, for example a loop that no longer advances.
caught = read("caught.txt") + read("timeout.txt")
listed = {}
for line in pathlib.Path("docs/verification.md").read_text().splitlines():
    cells = [cell.strip() for cell in line.replace(r"\|", "\0").strip("|").split("|")]
    if line.startswith("|") and len(cells) == 3 and cells[0] == f"`{file}`":
        listed[cells[1].strip("`").replace("\0", "|")] = cells[2]
problems = [f"{mutant}: survives but is not listed" for mutant in sorted(survivors - listed.keys())]
problems += [f"{mutant}: is listed without a reason" for mutant, reason in listed.items() if not reason]
if is_whole:
    stale = sorted(listed.keys() - survivors)
    problems += [f"{mutant}: is listed but was caught or no longer exists" for mutant in stale]
print(f"{file}: {len(caught)} mutants caught, {len(survivors)} survived, {len(listed)} listed")
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
        echo "time limit reached before $file"
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
        echo "time limit reached within $file"
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
