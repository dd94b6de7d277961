#!/usr/bin/env bash
# Make .venv and install Roquet into it for development.
#
# Needs Python 3.11 or newer. As root on a machine with apt it also installs what is missing to make
# a virtual environment, to compile the fast lane and to run Spark; anywhere else it says what is
# missing.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
venv=${VENV:-.venv}

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_updated=no
apt_install() {
    can_apt || return 1
    say "installing $* with apt-get"
    export DEBIAN_FRONTEND=noninteractive
    if [ "$apt_updated" = no ]; then
        apt-get update -qq || return 1
        apt_updated=yes
    fi
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

command -v "$python" >/dev/null || fail "$python is not installed; Roquet needs Python 3.11 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old; Roquet needs 3.11 or newer (set PYTHON=python3.12, say)"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

# Debian splits both ensurepip and Python.h off into packages of their own.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    apt_install "python$version-venv" ||
        fail "this Python cannot make virtual environments; install the package python$version-venv"
fi

python_header() {
    "$python" -c 'import os, sysconfig as s; print(os.path.join(s.get_path("include"), "Python.h"))'
}

lane=fast
if [ "${ROQUET_PURE:-0}" != 0 ]; then
    lane=pure
else
    if ! command -v cc >/dev/null && ! command -v gcc >/dev/null && ! command -v clang >/dev/null; then
        apt_install gcc libc6-dev || { lane=pure; say "no C compiler found: the pure Python lane runs"; }
    fi
    if [ "$lane" = fast ] && [ ! -e "$(python_header)" ]; then
        apt_install "libpython$version-dev" ||
            { lane=pure; say "$(python_header) is missing: the pure Python lane runs"; }
    fi
fi

# Spark, and nothing else, runs on Java.
if ! command -v java >/dev/null && [ ! -x "${JAVA_HOME:-/none}/bin/java" ]; then
    apt_install openjdk-17-jre-headless ||
        say "Java is missing, which Spark needs: install a JRE of version 17 or newer" \
            "(Debian: openjdk-17-jre-headless)"
fi

[ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import pip' 2>/dev/null ||
    "$python" -m venv --clear "$venv"

rm -f src/roquet/_*.so
[ "$lane" = fast ] || export ROQUET_PURE=1
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev,codecs,spark,delta,iceberg]'

if [ -e src/roquet/_wire.pyx ] && [ "$lane" = fast ] && ! ls src/roquet/_wire.*.so >/dev/null 2>&1; then
    say "the fast lane could not be compiled: the pure Python lane runs" \
        "(for the reason: $venv/bin/python -m pip install -v --no-deps -e .)"
fi
