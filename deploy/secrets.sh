#!/bin/sh
# Makes the secrets of brokers: a certificate of a new authority for each, and users with which
# brokers link and an operator looks at them.
#
#     deploy/secrets.sh etc oslo riga bern     makes etc/oslo, etc/riga, etc/bern and etc/operator
#
# Each folder has authority.pem, broker.pem (the certificate with its key), users.toml and token, the
# token of its broker. Names are those by which others reach the brokers, 127.0.0.1 is added. The
# folder must not exist. In a container the broker has uid 7655: chown -R 7655 etc afterwards.
set -eu
umask 077
[ $# -ge 2 ] || { echo "usage: $0 FOLDER BROKER..." >&2; exit 2; }
folder=$1
shift
mkdir "$folder"
users=$folder/users.toml

# openssl prints its progress as errors: they are shown after a failure only.
quietly() {
    "$@" 2> "$folder/errors" || { cat "$folder/errors" >&2; exit 1; }
    rm "$folder/errors"
}

quietly openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 3650 \
    -subj "/CN=Contrada authority" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -keyout "$folder/authority.key" -out "$folder/authority.pem"

for name in "$@"; do
    own=$folder/$name
    mkdir "$own"
    quietly openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj "/CN=$name" \
        -keyout "$own/broker.key" -out "$own/broker.csr"
    printf 'subjectAltName=DNS:%s,DNS:localhost,IP:127.0.0.1\nauthorityKeyIdentifier=keyid' "$name" \
        > "$own/names"
    quietly openssl x509 -req -in "$own/broker.csr" -CA "$folder/authority.pem" -CAkey "$folder/authority.key" \
        -days 825 -extfile "$own/names" -out "$own/broker.crt"
    cat "$own/broker.crt" "$own/broker.key" > "$own/broker.pem"
    rm "$own/broker.crt" "$own/broker.key" "$own/broker.csr" "$own/names"
    contrada user add "$name" --users "$users" --token-file "$own/token" --everything \
        --publisher '*' --durable '*' --link --inspect
done
mkdir "$folder/operator"
contrada user add operator --users "$users" --token-file "$folder/operator/token" --everything --inspect

for name in "$@"; do
    cp "$users" "$folder/authority.pem" "$folder/$name"
done
rm "$users"
mv "$folder/authority.pem" "$folder/operator"  # Its key stays beside the folders, which are mounted.
