#!/usr/bin/env bash
# Prints the size of the workspace: lines by crate, words by document, public items, and long functions.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 ci/count.py
