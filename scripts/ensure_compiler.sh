#!/usr/bin/env bash
# Ends well where a C compiler and the headers of the Python $1 are there, or could be installed by
# apt as root. Otherwise says so, and ends well too: contrada then runs interpreted.
set -euo pipefail
readonly PYTHON=$1

is_there() {
    local include
    include=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
    { command -v cc || command -v gcc || command -v clang; } >/dev/null && [ -f "$include/Python.h" ]
}

install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "No C compiler found: installing one by apt" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 &&
        apt-get install -y -qq --no-install-recommends gcc libc6-dev python3-dev >&2
}

is_there || { install && is_there; } ||
    echo "No C compiler, or no Python.h: install gcc and python3-dev. Without, matching is slow." >&2
