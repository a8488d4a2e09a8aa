#!/usr/bin/env bash
# Runs the checks that take too long for every change. Usage: ci/nightly.sh [STEP...]; by default all steps run in
# order. A failing step does not prevent the others from running; the exit status is 1 if any step failed.
#
#   deps       licences, advisories, bans and sources of all dependencies; installs cargo-deny
#   count      the size of the workspace
#   release    the README's first command, the golden vectors, with a release build
#   pgo        the program of the release workflow, optimized by a profile; needs llvm-profdata
#   features   clippy, documentation and the program with all features
#   targets    the declared Rust version, and other targets
#   cost       cost of publishing at a million nodes, and load and latency at that size
#   benchmarks every measurement of ci/benchmarks.sh, on small clusters
#   loom       the loom models and their mutants; three models without the bound that CI sets
#   miri       Miri with many seeds
#   thread     both sanitizers
#   floods     probes under hostile connections to the secure port, with measurements
#   live       2,000 random schedules of faults of an API server, and 2,500 storms of preemptions
#   fuzz       each target for PORTOLAN_FUZZ_SECONDS (900)
#   soak       hostile readers, memory and progress for PORTOLAN_SOAK_MINUTES (20)
#   demo       the scheduler on an API server that fails, for PORTOLAN_DEMO_MINUTES (60): no pod lost, flat memory and queues
#   mutants    mutants made by cargo-mutants, for PORTOLAN_MUTANT_MINUTES (90): see docs/verification.md
set -uo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never
steps=("$@")
if [ ${#steps[@]} = 0 ]; then steps=(count deps release pgo features targets cost benchmarks loom miri thread floods live fuzz soak demo mutants); fi

run_step() {
    case $1 in
    count) bash ci/count.sh ;;
    deps) bash ci/deps.sh all ;;
    release)
        bash ci/first-five-minutes.sh && bash ci/vectors.sh
        ;;
    pgo) bash ci/pgo.sh ;;
    features)
        bash ci/clippy.sh all && bash ci/docs.sh all &&
            cargo test -p portolan-cli
        ;;
    targets) bash ci/msrv.sh && bash ci/targets.sh ;;
    cost)
        bash ci/cost.sh && cargo run --release -p portolan-bench -- cache --nodes 1000000
        ;;
    benchmarks) bash ci/benchmarks.sh --quick ;;
    loom) PORTOLAN_EXHAUSTIVE=1 bash ci/loom.sh ;;
    miri) bash ci/miri.sh 64 ;;
    thread) bash ci/sanitizers.sh address && bash ci/sanitizers.sh thread ;;
    floods) bash ci/floods.sh ;;
    live)
        PORTOLAN_SCHEDULES=2000 cargo test --release -p portolan-kube --test live schedules:: &&
            PORTOLAN_STORMS=100 cargo test --release -p portolan-kube --lib storm_tests::
        ;;
    fuzz) bash ci/fuzz.sh --seconds "${PORTOLAN_FUZZ_SECONDS:-900}" ;;
    soak) cargo run --release --example soak -- --minutes "${PORTOLAN_SOAK_MINUTES:-20}" ;;
    demo)
        cargo run --release -p portolan-cli --features cluster -- demo --faults --for "${PORTOLAN_DEMO_MINUTES:-60}m"
        ;;
    mutants) bash ci/machine-mutants.sh ;;
    *)
        echo "unknown step $1: use one of count, deps, release, pgo, features, targets, cost, benchmarks, loom, miri, thread, floods, live, fuzz, soak, demo, mutants"
        return 1
        ;;
    esac
}

failed=()
for step in "${steps[@]}"; do
    printf '\n== %s\n' "$step"
    start=$SECONDS
    if run_step "$step"; then
        printf '== %s: passed in %s s\n' "$step" "$((SECONDS - start))"
    else
        printf '== %s: FAILED after %s s\n' "$step" "$((SECONDS - start))"
        failed+=("$step")
    fi
done
if [ ${#failed[@]} -gt 0 ]; then
    printf '\nfailed: %s\n' "${failed[*]}"
    exit 1
fi
printf '\nall steps passed\n'
