#!/usr/bin/env bash
# The library's modules import along the arrows of docs/design.md alone, and each is listed there. ci/rooms.py first shows
# on a small tree that it finds bad imports. ci/rooms.sh --arrows also prints how many imports run along each arrow.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHONDONTWRITEBYTECODE=1 python3 ci/rooms.py "$@"
