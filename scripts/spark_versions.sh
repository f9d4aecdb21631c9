#!/usr/bin/env bash
# Runs the Spark tests with other versions of PySpark: $1 is the interpreter with everything else,
# each further argument a version, which is installed below build/spark. Tests go on after a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly PYTHON=$1 ROOM=tests/integrations/spark
readonly TESTS=("$ROOM"/{connector,transforms}
    "$ROOM"/pipeline/test_{runs,match_publisher,pipeline_stream,source_outcomes}.py)
shift

failed=()
for version; do
    folder=build/spark/$version
    if [ ! -d "$folder" ]; then
        "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-compile \
            --target "$folder.part" "pyspark==$version"
        mv "$folder.part" "$folder"
    fi
    echo "Spark $version"
    # PySpark leaves sockets to the garbage collector before 4.2.
    PYTHONPATH=$PWD/$folder${PYTHONPATH:+:$PYTHONPATH} "$PYTHON" -m pytest -q --hypothesis-profile=quick \
        -W ignore::pytest.PytestUnraisableExceptionWarning -W ignore::ResourceWarning \
        -m "not slow and not long" "${TESTS[@]}" ||
        failed+=("$version")
done
[ ${#failed[@]} = 0 ] || { echo "failed with Spark: ${failed[*]}" >&2; exit 1; }
