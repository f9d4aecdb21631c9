#!/usr/bin/env bash
# Runs the core's tests with the lowest or the newest versions of what the package requires: $1 is
# `lowest-direct` or `highest`, each further argument a version of Python. Each pair has a room below
# build/versions; the wheel is installed there. psycopg needs the system's libpq. Spark has
# scripts/spark_versions.sh of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly RESOLUTION=$1 UV=${UV:-build/uv/bin/uv}
readonly EXTRAS=(amqp evtx feeds files gossip http jwt kafka mqtt nats postgres query redis signing tracing)
readonly TESTS=(tests/{cli,delivery,gossip,integrations,matching,model,net,patterns,routing,service,typed})
readonly TOOLS=(attrs cython detect-secrets feedparser filelock hatchling hypothesis jinja2 lxml-stubs mypy
    pydantic pytest pytest-timeout pytest-xdist ruff setuptools trustme types-pyyaml)
shift
export CONTRADA_GROUP=core  # Tests whose libraries are missing skip.

[ -x "$UV" ] || { python3 -m venv build/uv && build/uv/bin/pip install --quiet uv; }
failed=()
for python; do
    room=build/versions/$python-$RESOLUTION
    if ! "$UV" python find --quiet --no-python-downloads "$python" > /dev/null; then
        echo "Python $python is not installed: left out" >&2
        failed+=("$python (not installed)")
        continue
    fi
    echo "Python $python, $RESOLUTION"
    "$UV" venv --quiet --clear --python "$python" "$room"
    # Only what users install is resolved so: tools of the tests are the newest that fit.
    "$UV" pip compile --quiet --resolution "$RESOLUTION" --only-binary :all: \
        --python "$room/bin/python" "${EXTRAS[@]/#/--extra=}" --output-file "$room/pins.txt" pyproject.toml
    "$UV" build --quiet --python "$python" --out-dir "$room/dist"
    "$UV" pip install --quiet --python "$room/bin/python" --requirement "$room/pins.txt" \
        "$room"/dist/*.whl "${TOOLS[@]}"
    "$room/bin/python" -m pytest -q -n auto --hypothesis-profile=quick -m "not slow and not long" \
        -p no:cacheprovider "${TESTS[@]}" || failed+=("$python")
done
[ ${#failed[@]} = 0 ] || { echo "failed with $RESOLUTION: ${failed[*]}" >&2; exit 1; }
