#!/usr/bin/env bash
# Checks that the library compiles without warnings for other targets: wasm32, 32-bit x86 and ARM. Missing targets are
# installed if possible. `ci/targets.sh quick` checks the first two, without optional features.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="-D warnings"
is_installed() {
    local installed
    installed=$(rustup target list --installed 2>/dev/null) && grep -qx "$1" <<<"$installed"
}
targets=(wasm32-unknown-unknown i686-unknown-linux-gnu aarch64-unknown-linux-gnu)
features=--all-features
if [ "${1:-}" = quick ]; then
    targets=("${targets[@]:0:2}")
    features=--no-default-features
fi
checked=()
for target in "${targets[@]}"; do
    is_installed "$target" || timeout 120 rustup target add "$target" >/dev/null 2>&1 || true
    if is_installed "$target"; then
        checked+=("$target")
    else
        echo "SKIPPED: the target $target cannot be installed here; nothing was built for it"
    fi
done
if [ ${#checked[@]} -gt 0 ]; then
    CARGO_TARGET_DIR=target/targets cargo check --quiet --locked "${checked[@]/#/--target=}" -p portolan -p portolan-publish "$features"
    echo "no warnings: ${checked[*]}"
fi
