#!/usr/bin/env bash
# Checks deploy/: the YAML is well-formed, the chart's defaults are the manifests, the roles grant exactly the requests
# of deploy/verbs.txt, the program has the flags of the Deployment, and its pods have restricted rights and the probes,
# budget and network policies that fit the program. ci/manifests.py verifies on changed copies that it detects faults.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! python3 -c 'import yaml' 2>/dev/null; then
    echo "SKIPPED: PyYAML is not installed here (python3 -m pip install pyyaml); deploy/ is not checked"
    exit 0
fi
PYTHONDONTWRITEBYTECODE=1 python3 ci/manifests.py "$@"
