#!/usr/bin/env bash
# Checks that .ci/run, ci/nightly.sh or a workflow runs every script in ci/; that these and the documents name only
# existing scripts; and that workflows and the Containerfile pin actions to commits and images to digests, limit the
# time and the permissions of jobs, and put no expressions into scripts. ci/workflow.py first verifies on a small tree
# that it detects such faults.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHONDONTWRITEBYTECODE=1 python3 ci/workflow.py "$@"
