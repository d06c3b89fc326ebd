#!/bin/sh
# Installs into .venv the servers that tests/connectors runs with, and their clients. Without them those tests are skipped; in CI they
# fail. They are no extra: botocore needs a python-dateutil below the version that constraints.txt has for pandas.
set -eu
cd "$(dirname "$0")/.."
"${TOPO_VENV:-.venv}/bin/python" -m pip install --quiet 'moto[server]==5.2.5' 's3fs==2026.9.0' 'botocore==1.43.117' 'python-dateutil<3'
