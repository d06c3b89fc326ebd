#!/bin/sh
# Makes .venv whole for the extras named as arguments. PYTHON names the interpreter: 3.11, 3.12 or 3.13.
cd "$(dirname "$0")/.." || exit 1
python="${PYTHON:-python3}"
right='import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'

if ! "$python" -c "$right" >/dev/null 2>&1; then
    found=$("$python" -c 'import sys; print("Python %d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || found="not a Python that runs"
    fix="install Python 3.13, then: make PYTHON=/path/to/python3"
    for candidate in python3.13 python3.12 python3.11 python3; do
        if "$candidate" -c "$right" >/dev/null 2>&1; then
            fix="use: make PYTHON=$candidate"
            break
        fi
    done
    echo "topo needs Python 3.11, 3.12 or 3.13, and '$python' is $found; $fix" >&2
    exit 1
fi
exec "$python" scripts/environment.py "$@"
