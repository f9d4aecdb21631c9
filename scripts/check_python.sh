#!/usr/bin/env bash
# Ends with one line when the interpreter named in $1 is missing or older than 3.11.
set -euo pipefail

python="${1:?usage: check_python.sh INTERPRETER}"

if ! command -v "$python" >/dev/null; then
    echo "Python >= 3.11 is needed, '$python' was not found (name another: make PYTHON=...)" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Python >= 3.11 is needed, '$python' is $("$python" -V 2>&1 | head -n 1)" \
        "(name another: make PYTHON=python3.12)" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "'$python' cannot make virtual environments (on Debian and Ubuntu: apt-get install python3-venv)" >&2
    exit 1
fi
