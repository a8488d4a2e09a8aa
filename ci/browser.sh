#!/usr/bin/env bash
# Uses the page of `portolan serve` as a person would, in Chromium without a window: cli/tests/browser. The program is
# built first, unless PORTOLAN is its path. The screenshots are in browser/screenshots in the target folder. Arguments
# are names of test files, such as fleet.test.js.
#
# PAGE=cli/src/page shows the files of that folder instead of those in the program. UPDATE_SCREENSHOT=1 takes the
# picture in docs/ again. CHROMIUM is the path of the browser.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() {
    echo "SKIPPED: $*; the page of portolan serve is not tested here"
    exit 0
}
has_node() {
    command -v node >/dev/null && command -v npm >/dev/null && [ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ]
}
install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >&2 </dev/null || true
}
has_node || install nodejs npm
has_node || skip "Node.js 20 or later and npm are not installed here"
find_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
if [ -z "${CHROMIUM:-}" ]; then
    find_chromium >/dev/null || install chromium
    CHROMIUM=$(find_chromium) || skip "Chromium is not installed here (apt-get install chromium)"
fi
command -v "$CHROMIUM" >/dev/null || skip "$CHROMIUM does not exist"
export CHROMIUM

target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
if [ -z "${PORTOLAN:-}" ]; then
    cargo build --quiet -p portolan-cli --features cluster
    PORTOLAN=$target/debug/portolan
fi
PORTOLAN=$(realpath "$PORTOLAN")
SCREENSHOTS=$target/browser/screenshots
DOCS=$PWD/docs
export PORTOLAN SCREENSHOTS DOCS
if [ -n "${PAGE:-}" ]; then PAGE=$(realpath "$PAGE") && export PAGE; fi

# A copy, since npm writes beside the tests.
mkdir -p "$target/browser/tests"
rm -f "$target"/browser/tests/*.js
rm -rf "$SCREENSHOTS"
cp cli/tests/browser/*.js cli/tests/browser/package*.json "$target/browser/tests/"
cd "$target/browser/tests"
if ! cmp -s package-lock.json node_modules/.installed; then
    npm ci --ignore-scripts --no-audit --no-fund >npm.log 2>&1 || { cat npm.log && skip "npm cannot install the packages"; }
    cp package-lock.json node_modules/.installed
fi
node --test --test-reporter=spec "$@"
