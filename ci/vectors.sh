#!/usr/bin/env bash
# The golden vectors: what kube-scheduler answers.
set -euo pipefail
cd "$(dirname "$0")/.."
vectors=../shared/vectors
if [ ! -d "$vectors" ]; then
    echo "SKIPPED: the golden vectors are not here ($vectors)"
    exit 0
fi
for kind in cache scheduling scheduling-large profiles volumes preemption; do
    cargo run --release --quiet -- conformance "$vectors/$kind.jsonl.gz"
done
