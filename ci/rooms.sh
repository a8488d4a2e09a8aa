#!/usr/bin/env bash
# Checks that the library's modules import only what the table of modules in docs/design.md allows, and that each module
# is listed there. ci/rooms.py first verifies on a small tree that it detects forbidden imports. `ci/rooms.sh --arrows`
# also prints the number of imports along each arrow.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHONDONTWRITEBYTECODE=1 python3 ci/rooms.py "$@"
