#!/usr/bin/env bash
# The library with default features pulls only what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."
allowed=' allocator-api2 cfg-if crossbeam-channel crossbeam-deque crossbeam-epoch crossbeam-utils either equivalent foldhash hashbrown left-right portolan portolan-publish proc-macro2 quote rayon rayon-core rustversion slab syn thiserror thiserror-impl triomphe unicode-ident '
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
# Formats are read by portolan-k8s, whatever the features.
if cargo tree -p portolan -e normal --prefix none --all-features | grep -E '^serde|yaml|json'; then
    echo "the library pulls a parser: formats belong to portolan-k8s"
    exit 1
fi
if cargo deny --version >/dev/null 2>&1; then
    cargo deny check
else
    echo "SKIPPED: cargo-deny is not installed here (cargo install cargo-deny); deny.toml is not checked"
fi
