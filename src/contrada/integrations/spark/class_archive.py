"""`write_archive`: an archive of Spark's loaded classes, with which sessions start faster.

Java writes it when a process ends, and maps it into later processes (class-data sharing, JEP 350).
It belongs to one Java and one PySpark, whose digest is in its name. Java itself checks it.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from contrada.errors import EngineError
from contrada.integrations.spark.spark_session import QUIET, archive_path, spark_session

ARCHIVE_WAIT_S: Final = 300.0
"""Seconds for writing the archive. Beyond it: the attempt ends with an error."""


def write_archive() -> Path:
    """Starts a Spark session, matches rows, and archives the loaded classes, atomically. Cost: some
    150 MB, half a minute. Raises EngineError if Java writes no archive.
    """
    kept = archive_path()
    kept.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=kept.parent) as folder:
        new = Path(folder) / kept.name
        command = [sys.executable, "-m", "contrada.integrations.spark.class_archive", str(new)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=ARCHIVE_WAIT_S
            )
        except subprocess.TimeoutExpired:
            raise EngineError(f"Java kept no classes within {ARCHIVE_WAIT_S:g} s") from None
        if done.returncode or not new.is_file():
            reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
            raise EngineError(f"Java kept no classes: {reason}")
        new.replace(kept)
    for old in set(kept.parent.glob("*.jsa")) - {kept}:
        old.unlink(missing_ok=True)
    return kept


def load_classes(new: str) -> None:
    """Runs a session, as a child process; Java archives the loaded classes at its end."""
    from pyspark import SparkContext

    from contrada.integrations.spark.transforms.frame_match import route

    with TemporaryDirectory() as folder:
        options = f'"-XX:ArchiveClassesAtExit={new}" {QUIET}'
        with spark_session(1, java_options=options) as session:
            path = str(Path(folder, "rows"))
            session.range(2).selectExpr("id AS n", "'a' AS text").write.parquet(path)
            frame = session.read.parquet(path)
            for way in ("index", "predicates"):
                frame.transform(route({"one": "n > 0"}, way=way)).collect()
        gateway: Any = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(ARCHIVE_WAIT_S)


if __name__ == "__main__":
    load_classes(sys.argv[1])
