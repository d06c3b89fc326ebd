#!/bin/sh
# Runs the contract suite of the compiled per-tuple path under the address and undefined-behaviour sanitizers of gcc, in a copy of the
# tree: what they find ends the run. It needs .venv as `make setup EXTRAS="test dev"` leaves it, and gcc with its sanitizers.
#   sh scripts/sanitizers.sh                                     tests/contract/hot
#   sh scripts/sanitizers.sh tests/contract/hot/test_rows.py     the tests named
set -eu
cd "$(dirname "$0")/.."
python="$PWD/.venv/bin/python"
[ -x "$python" ] || { echo 'there is no .venv: make setup EXTRAS="test dev" makes it' >&2; exit 1; }
command -v gcc >/dev/null || { echo 'there is no gcc: install it' >&2; exit 1; }
address=$(gcc -print-file-name=libasan.so)
undefined=$(gcc -print-file-name=libubsan.so)
[ -e "$address" ] && [ -e "$undefined" ] || { echo 'gcc has no sanitizers: install libasan and libubsan' >&2; exit 1; }

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -R topo cli tests setup.py pyproject.toml README.md LICENSE "$copy"
cd "$copy"
rm -f topo/hot/compiled/*.so
ln -s cli topo_cli
CC=gcc CFLAGS="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined" \
    LDFLAGS="-fsanitize=address,undefined" TOPO_REQUIRE_COMPILED=1 "$python" setup.py -q build_ext --inplace --parallel 2

# What a sanitizer writes must not end in a file of pytest: hence --capture=sys.
# The interpreter frees nothing at its end, so leaks are not looked for; its small objects come from malloc, which is watched.
export PYTHONMALLOC=malloc PYTHONPATH="$copy" TOPO_REQUIRE_COMPILED=1 HYPOTHESIS_STORAGE_DIRECTORY="$copy/.hypothesis"
export ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1" UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export LD_PRELOAD="$address $undefined"
[ $# -gt 0 ] || set -- tests/contract/hot
"$python" -c "import topo.hot, pathlib, os; assert topo.hot.KIND == 'compiled' and topo.hot.__file__.startswith(os.getcwd())"
"$python" -m pytest -q -n 0 -p no:cacheprovider --capture=sys "$@"
