#!/bin/sh
# Installs into .venv the servers that tests/connectors runs with, and their clients. Without them those tests are skipped; in CI they
# fail. What constraints.txt names keeps its version.
set -eu
cd "$(dirname "$0")/.."
sh scripts/setup.sh test
"${TOPO_VENV:-.venv}/bin/python" -m pip install --quiet -c constraints.txt 'moto[server]==5.2.5' 's3fs==2026.9.0' 'botocore==1.43.117'
