#!/bin/sh
# Makes .venv whole for the extras named as arguments. PYTHON names the interpreter; it must be 3.11 or newer.
cd "$(dirname "$0")/.." || exit 1
python="${PYTHON:-python3}"
modern='import sys; sys.exit(sys.version_info < (3, 11))'

if ! "$python" -c "$modern" >/dev/null 2>&1; then
    found=$("$python" -c 'import sys; print("Python %d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || found="not a Python that runs"
    fix="install Python 3.11 or newer, then: make PYTHON=/path/to/python3"
    for candidate in python3.14 python3.13 python3.12 python3.11 python3; do
        if "$candidate" -c "$modern" >/dev/null 2>&1; then
            fix="use: make PYTHON=$candidate"
            break
        fi
    done
    echo "topo needs Python 3.11 or newer, and '$python' is $found; $fix" >&2
    exit 1
fi
exec "$python" scripts/environment.py "$@"
