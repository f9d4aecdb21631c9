#!/bin/sh
# Looks for known faults of what is pinned, and for secrets in what is tracked. Ends with 1 where
# one is found, and with 2 where the service that knows faults told nothing: silence is no pass.
# Usage: audit.sh BIN, the folder of the tools.
set -u
bin=$1
status=0

echo "secrets in tracked files:"
git ls-files -z |
    xargs -0 "$bin/detect-secrets-hook" --no-verify --baseline .secrets.baseline &&
    echo "none that is not marked" || status=1

echo "known faults of what requirements/dev.txt pins:"
told=$(mktemp)
trap 'rm -f "$told"' EXIT
"$bin/pip-audit" --strict --disable-pip --require-hashes --progress-spinner off \
    --format json --output "$told" -r requirements/dev.txt 2>"$told.err"
found=$?
if [ ! -s "$told" ]; then
    grep -v '^ ' "$told.err" | tail -n 1
    echo "audit: the service that knows faults could not be asked about all of it: nothing is known" >&2
    rm -f "$told.err"
    exit 2
fi
rm -f "$told.err"
"$bin/python" - "$told" <<'PYTHON'
import json
import sys

told = json.load(open(sys.argv[1], encoding="utf-8"))["dependencies"]
faulty = [(each, fault) for each in told for fault in each.get("vulns", ())]
for each, fault in faulty:
    mended = ", ".join(fault["fix_versions"]) or "no version yet"
    print(f"{each['name']} {each['version']}: {fault['id']}, mended in {mended}")
print(f"{len(told)} packages, {len(faulty)} known faults")
PYTHON
[ "$found" -eq 0 ] || status=1
exit "$status"
