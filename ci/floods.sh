#!/usr/bin/env bash
# Opens 1,000 hostile connections of each kind to the secure port of `portolan run`, and prints the time of probes and
# the memory meanwhile. Fails if a probe is not answered within 10 s. Not a release build: the test is one of those of
# CI, whose output is hidden there.
set -euo pipefail
cd "$(dirname "$0")/.."
# Each connection has two ends in this process. With fewer files, the test opens fewer connections.
ulimit -n "$(ulimit -Hn)" || true
# grep fails if the test was renamed and nothing ran.
cargo test -p portolan-kube --lib probes_are_answered_during_floods -- --nocapture | tee /dev/stderr |
    grep '^random paths' >/dev/null
