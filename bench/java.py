"""Java and Spark of the figures: whether they can run, and the session that they share."""

import os
import shutil
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY: Final = "8g"
"""Of the JVM. In 4 GB plain Spark SQL compiled no thousand predicates beside a million filters."""


def has_java() -> bool:
    """Whether Spark would find a Java."""
    return "JAVA_HOME" in os.environ or shutil.which("java") is not None


def bench_session() -> AbstractContextManager["SparkSession"]:
    """Returns a session on two cores. All figures of a run share its Java, and so the memory."""
    from contrada.integrations.spark.spark_session import spark_session

    return spark_session(2, "bench", conf={"spark.driver.memory": MEMORY})
