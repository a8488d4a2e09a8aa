#!/usr/bin/env bash
# The library with default features pulls only what it needs, and the declared
# rust-version covers what it pulls.
set -euo pipefail
cd "$(dirname "$0")/.."
allowed=' allocator-api2 arc-swap cfg-if crossbeam-channel crossbeam-deque crossbeam-epoch crossbeam-utils either equivalent foldhash hashbrown left-right portolan proc-macro2 quote rayon rayon-core rustversion slab syn thiserror thiserror-impl triomphe unicode-ident '
found=$(cargo tree -p portolan -e normal --prefix none --no-default-features | awk '{print $1}' | sort -u)
bad=0
for crate in $found; do
    case "$allowed" in
    *" $crate "*) ;;
    *) echo "the library pulls $crate: give ci/deps.sh a reason to allow it"; bad=1 ;;
    esac
done
[ "$bad" = 0 ]
echo "default features pull: $(echo $found)"
cargo metadata --format-version 1 | python3 -c '
import json, sys
data = json.load(sys.stdin)
number = lambda text: tuple(int(part) for part in (text.split(".") + ["0", "0"])[:3])
own = {p["name"]: p["rust_version"] for p in data["packages"] if p["source"] is None}
declared = set(own.values())
assert len(declared) == 1, f"one rust-version for the workspace, not {own}"
ours = declared.pop()
newer = [(p["name"], p["rust_version"]) for p in data["packages"]
         if p["rust_version"] and number(p["rust_version"]) > number(ours)]
assert not newer, f"rust-version {ours} is older than what these need: {newer}"
print(f"rust-version {ours} covers all dependencies that declare one")
'
if cargo deny --version >/dev/null 2>&1; then
    cargo deny check
else
    echo "SKIPPED: cargo-deny is not installed here (cargo install cargo-deny); deny.toml is not checked"
fi
