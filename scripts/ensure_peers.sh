#!/usr/bin/env bash
# Ends well where the servers that measurements compare with are there, or could be installed by apt
# as root. Otherwise names the absent ones, and ends well too: the page then says which are absent.
set -euo pipefail
readonly SERVERS=(mosquitto redis-server)

absent() {
    local server
    for server in "${SERVERS[@]}"; do
        command -v "$server" >/dev/null || echo "$server"
    done
}

install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "Installing by apt: $*" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends "$@" >&2
}

mapfile -t missing < <(absent)
[ ${#missing[@]} = 0 ] || { install "${missing[@]}" && [ -z "$(absent)" ]; } ||
    echo "Measured without: $(absent | xargs)" >&2
