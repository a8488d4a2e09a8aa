#!/usr/bin/env bash
# Checks that the library with default features depends only on the crates in the list below, and that all dependencies
# follow deny.toml: licences, advisories, duplicates and sources. Usage: ci/deps.sh [all].
#
# deny.toml needs cargo-deny. With `all`, as in ci/nightly.sh and the workflow, it is mandatory: the version below is
# installed if another one or none is present, and everything that cannot be checked is a failure. Without `all`, as in
# .ci/run, nothing is installed, since building cargo-deny takes 5 minutes of processor time: an installed cargo-deny is
# used, whatever its version, and everything that cannot be checked is printed as SKIPPED. With STRICT=1, .ci/run fails
# then, too.
#
# Advisories are in a database that is cloned from github.com. If it cannot be reached, licences, bans and sources are
# checked nevertheless.
set -euo pipefail
cd "$(dirname "$0")/.."
deny_version=0.20.2
mode=${1:-quick}
case $mode in
all | quick) ;;
*) echo "usage: ci/deps.sh [all]"; exit 2 ;;
esac
allowed=' allocator-api2 cfg-if crossbeam-channel crossbeam-deque crossbeam-epoch crossbeam-utils either equivalent foldhash hashbrown portolan portolan-publish proc-macro2 quote rayon rayon-core rustversion slab syn thiserror thiserror-impl triomphe unicode-ident '
found=$(cargo tree -p portolan -e normal --prefix none --no-default-features | awk '{print $1}' | sort -u)
bad=0
for crate in $found; do
    case "$allowed" in
    *" $crate "*) ;;
    *) echo "the library depends on $crate: remove it, or allow it in ci/deps.sh"; bad=1 ;;
    esac
done
[ "$bad" = 0 ]
echo "dependencies with default features: $(echo $found)"
# Only portolan-k8s may depend on parsers.
if cargo tree -p portolan -e normal --prefix none --all-features | awk '{print $1}' | grep -E 'yaml|json'; then
    echo "the library depends on a parser: formats belong to portolan-k8s"
    exit 1
fi

# Fails if everything must be checked.
not_checked() {
    if [ "$mode" = all ]; then
        echo "not checked: $1"
        exit 1
    fi
    echo "SKIPPED: $1"
}
installed=$(cargo deny --version 2>/dev/null || true)
if [ "$mode" = all ] && [ "$installed" != "cargo-deny $deny_version" ]; then
    # `--force`, since a cache may have the program without Cargo's record of it.
    cargo install --locked --force --version "$deny_version" cargo-deny ||
        not_checked "cargo-deny $deny_version cannot be installed; deny.toml"
elif [ -z "$installed" ]; then
    not_checked "cargo-deny is not installed here (bash ci/deps.sh all); deny.toml is not checked"
    exit 0
fi
# All crates of the workspace, with all features and for all targets; fuzz/ is a workspace of its own.
deny() {
    local manifest
    for manifest in Cargo.toml fuzz/Cargo.toml; do
        cargo deny --manifest-path "$manifest" --config deny.toml --workspace --all-features --locked \
            --log-level error "$@" || return 1
        echo "$manifest: ${*:$#}: passed"
    done
}
for what in bans licenses sources; do deny check "$what"; done
if cargo deny --config deny.toml fetch db; then
    deny check advisories
else
    not_checked "the database of advisories cannot be fetched from github.com; advisories are not checked"
fi
