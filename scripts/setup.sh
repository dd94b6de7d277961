#!/usr/bin/env bash
# Make .venv and install Roquet into it for development.
#
# Needs Python 3.11 or newer. As root on a machine with apt it also installs what is missing to make
# a virtual environment, to compile the hot path and to run Spark; anywhere else it says what is
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

code=compiled
if [ "${ROQUET_PURE:-0}" != 0 ]; then
    code=pure
else
    if ! command -v cc >/dev/null && ! command -v gcc >/dev/null && ! command -v clang >/dev/null; then
        apt_install gcc libc6-dev || { code=pure; say "no C compiler found: plain Python runs, which is slower"; }
    fi
    if [ "$code" = compiled ] && [ ! -e "$(python_header)" ]; then
        apt_install "libpython$version-dev" ||
            { code=pure; say "$(python_header) is missing: plain Python runs, which is slower"; }
    fi
fi

# Spark, and nothing else, runs on Java. The default JRE is older than 17 on some releases; newer
# releases have no package of 17 any more.
if ! command -v java >/dev/null && [ ! -x "${JAVA_HOME:-/none}/bin/java" ]; then
    apt_install openjdk-17-jre-headless || apt_install default-jre-headless ||
        say "Java is missing, which Spark needs: install a JRE of version 17 or newer" \
            "(Debian: openjdk-17-jre-headless or default-jre-headless)"
fi

# Report pages are tested in a browser.
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null &&
    ! command -v google-chrome >/dev/null; then
    apt_install chromium fonts-dejavu-core ||
        say "Chromium is missing: the tests that open report pages in it will be skipped"
fi

[ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import pip' 2>/dev/null ||
    "$python" -m venv --clear "$venv"

find src/roquet -name '*.so' -delete
[ "$code" = compiled ] || export ROQUET_PURE=1
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev,codecs,spark,delta,iceberg,hdfs]'

if [ "$code" = compiled ] && [ -z "$(find src/roquet -name '*.so')" ]; then
    say "nothing could be compiled: plain Python runs, which is slower" \
        "(for the reason: $venv/bin/python -m pip install -v --no-deps -e .)"
fi
