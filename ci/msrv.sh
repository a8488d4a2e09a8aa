#!/usr/bin/env bash
# Checks that the declared rust-version covers all dependencies, and builds the library and the crates beside it with that
# toolchain, which is installed if possible. `ci/msrv.sh quick` builds nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(cargo metadata --format-version 1 --locked | python3 -c '
import json, sys
data = json.load(sys.stdin)
number = lambda text: tuple(int(part) for part in (text.split(".") + ["0", "0"])[:3])
own = {p["name"]: (p["rust_version"], p["edition"]) for p in data["packages"] if p["source"] is None}
assert len(set(own.values())) == 1, f"crates of the workspace differ in rust-version or edition: {own}"
ours, edition = next(iter(own.values()))
assert ours, "no rust-version is declared"
first = {"2021": "1.56", "2024": "1.85"}[edition]
assert number(ours) >= number(first), f"edition {edition} requires Rust {first} or later, but {ours} is declared"
newer = [(p["name"], p["rust_version"]) for p in data["packages"]
         if p["rust_version"] and number(p["rust_version"]) > number(ours)]
assert not newer, f"rust-version {ours} is older than these dependencies require: {newer}"
print(ours)
')
echo "rust-version $version covers the edition and all dependencies that declare one"
[ "${1:-}" != quick ] || exit 0
if ! rustup run "$version" rustc --version >/dev/null 2>&1; then
    timeout 300 rustup toolchain install "$version" --profile minimal --no-self-update >/dev/null 2>&1 || true
fi
if rustup run "$version" rustc --version >/dev/null 2>&1; then
    CARGO_TARGET_DIR=target/msrv rustup run "$version" cargo check --locked -p portolan -p portolan-publish -p portolan-k8s --all-features
else
    echo "SKIPPED: Rust $version cannot be installed here; nothing was built with it"
fi
