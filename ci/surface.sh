#!/usr/bin/env bash
# Checks that the public items of portolan and portolan-publish are those in ci/surface.txt, one a line. A user relies on
# each of them, so a new one needs a reason: prefer `pub(crate)`. `ci/surface.sh update` writes the list.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONDONTWRITEBYTECODE=1
if [ "${1:-}" = update ]; then
    python3 ci/surface.py >ci/surface.txt
    exit
fi
if ! difference=$(diff --unchanged-line-format= --old-line-format='no longer public: %L' \
    --new-line-format='newly public: %L' ci/surface.txt <(python3 ci/surface.py)); then
    echo "$difference"
    echo "the public items differ from ci/surface.txt: make new ones pub(crate), or run ci/surface.sh update"
    exit 1
fi
echo "$(wc -l <ci/surface.txt) public items, each in ci/surface.txt"
