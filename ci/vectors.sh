#!/usr/bin/env bash
# Compares the engine with the golden vectors, which record kube-scheduler's answers.
set -euo pipefail
cd "$(dirname "$0")/.."
vectors=../shared/vectors
if [ ! -d "$vectors" ]; then
    echo "SKIPPED: the golden vectors are not available ($vectors)"
    exit 0
fi
for kind in cache scheduling scheduling-large profiles volumes preemption; do
    cargo run --release --quiet -- conformance "$vectors/$kind.jsonl.gz"
done
