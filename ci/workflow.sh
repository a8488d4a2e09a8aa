#!/usr/bin/env bash
# Checks that .ci/run, ci/nightly.sh or the workflow runs every script in ci/; that these and the documents name only
# existing scripts; and that the workflow pins its actions, limits its jobs and has read access only. ci/workflow.py
# first verifies on a small tree that it detects such faults.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHONDONTWRITEBYTECODE=1 python3 ci/workflow.py "$@"
