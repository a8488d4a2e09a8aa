#!/usr/bin/env bash
# Runs the README's first command, and checks that it makes the same decisions on one thread and on two. The program is
# built in release mode, unless PORTOLAN is the path of another build.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "${PORTOLAN:-}" ]; then portolan=("$PORTOLAN"); else portolan=(cargo run --release --quiet --); fi
one=$("${portolan[@]}" replay --threads 1 --output json)
two=$("${portolan[@]}" replay --threads 2 --output json)
python3 - "$one" "$two" <<'PY'
import json, sys
one, two = (json.loads(text) for text in sys.argv[1:])
assert one["placed"] > 0 and one["placed"] + one["failed"] == one["pods"], one
assert one["decision_hash"] == two["decision_hash"], "decisions depend on the number of threads"
print(f'{one["placed"]} of {one["pods"]} pods placed, decision hash {one["decision_hash"]} on 1 and 2 threads')
PY
"${portolan[@]}" replay
