#!/usr/bin/env bash
# Build the compiled modules with their checks on, in build/checked, and run pytest with them.
#
# The arguments go to pytest. Where the compiler brings AddressSanitizer as a library that can be
# loaded ahead of Python, the modules are built with it and with the sanitizer of undefined behaviour.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
built=build/checked

say() { printf 'checked: %s\n' "$*"; }

checks=1
library=$("${CC:-gcc}" -print-file-name=libasan.so 2>/dev/null || true)
if [ -e "$library" ] && LD_PRELOAD=$library ASAN_OPTIONS=detect_leaks=0 "$python" -c pass 2>/dev/null; then
    checks=sanitize
fi
say "building with ROQUET_CHECKED=$checks"
rm -rf "$built"
mkdir -p "$built"
ROQUET_CHECKED=$checks "$python" setup.py --quiet build --build-base "$built" --build-lib "$built/lib" \
    --parallel "$(getconf _NPROCESSORS_ONLN)" >"$built/log" 2>&1 || { cat "$built/log"; exit 1; }

export PYTHONPATH="$PWD/$built/lib"
if [ "$checks" = sanitize ]; then
    # Python keeps objects of its own in large blocks; with malloc the end of each of them is guarded.
    export LD_PRELOAD=$library PYTHONMALLOC=malloc
    # CPython leaves memory behind when it ends. What is found goes to files, as pytest takes stderr.
    export ASAN_OPTIONS="detect_leaks=0:log_path=$PWD/$built/fault"
    export UBSAN_OPTIONS="print_stacktrace=1:log_path=$PWD/$built/fault"
fi
"$python" - "$PYTHONPATH" <<'EOF'
import sys
import roquet
from roquet.runtime.compiled import path_in_use
assert roquet.__file__.startswith(sys.argv[1]), roquet.__file__
assert path_in_use() == "compiled", path_in_use()
EOF
status=0
"$python" -m pytest "$@" || status=$?
unset LD_PRELOAD
for fault in "$built"/fault.*; do
    [ ! -e "$fault" ] || { cat "$fault"; status=1; }
done
exit "$status"
