#!/usr/bin/env bash
# Ends well where the servers that measurements compare with are there, or could be installed by apt
# and npm as root. Otherwise names the absent ones, and ends well too: the page then says which are
# absent.
set -euo pipefail
readonly SERVERS=(mosquitto redis-server nginx)
readonly NCHAN=/usr/lib/nginx/modules/ngx_nchan_module.so

absent() {
    local server
    for server in "${SERVERS[@]}"; do
        command -v "$server" >/dev/null || echo "$server"
    done
    [ -e "$NCHAN" ] || echo libnginx-mod-nchan
}

has_faye() {
    command -v npm >/dev/null && NODE_PATH=$(npm root --global) node -e "require('faye')" 2>/dev/null
}

install_faye() {
    [ "$(id -u)" = 0 ] && command -v npm >/dev/null && npm install --global --silent faye >&2
}

install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "Installing by apt: $*" >&2
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # Installed, not started.
    apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends "$@" >&2
}

mapfile -t missing < <(absent)
[ ${#missing[@]} = 0 ] || { install "${missing[@]}" && [ -z "$(absent)" ]; } ||
    echo "Measured without: $(absent | xargs)" >&2
has_faye || { install_faye && has_faye; } || echo "Measured without: faye" >&2
