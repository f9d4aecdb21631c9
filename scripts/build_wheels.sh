#!/usr/bin/env bash
# Builds the wheels of [tool.cibuildwheel] into dist/, with the Python $1, or says what is missing.
# CIBW_ARCHS=x86_64 limits the machines: others than this one need emulation (qemu, binfmt).
set -euo pipefail
cd "$(dirname "$0")/.."
readonly PYTHON=$1

missing() {
    echo "make wheels: $1" >&2
    exit 2
}

command -v docker >/dev/null ||
    missing "docker is not installed; install it, or use make wheel for this platform alone"
docker info >/dev/null 2>&1 ||
    missing "docker is installed, but no daemon answers (docker info); start it, or use make wheel"
"$PYTHON" -m venv build/wheels
build/wheels/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
    -r requirements/wheels.txt
exec build/wheels/bin/python -m cibuildwheel --platform linux --output-dir dist .
