#!/usr/bin/env bash
# Every script in ci/ is run by .ci/run, ci/nightly.sh or the workflow; these and the documents name no script that does
# not exist; and the workflow pins its actions, limits its jobs and may only read. ci/workflow.py first shows on a small
# tree that it finds such faults.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHONDONTWRITEBYTECODE=1 python3 ci/workflow.py "$@"
