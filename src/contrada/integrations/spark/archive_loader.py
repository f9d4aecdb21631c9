"""Child process of `class_archive`: loads the classes that Java archives."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark import SparkContext

from contrada.integrations.spark.class_archive import ARCHIVE_WAIT_S, QUIET
from contrada.integrations.spark.spark_session import spark_session
from contrada.integrations.spark.transforms.frame_match import route


def load_classes(new: str) -> None:
    """Runs a session with matches; Java archives the loaded classes in a new file at its end."""
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
