"""`check_format`: checks that Spark knows a format before a run, which would fail when it
writes.
"""

import re
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from contrada.errors import InputError
from contrada.integrations.files import FORMATS

TEXT_FORMATS: Final = tuple(FORMATS)
"""The formats of sources that Spark does not read."""

SPARK_FORMATS: Final = ("parquet", "orc", "csv", "json", "text", "xml", "jdbc", "contrada")
"""Built-in formats, some of which are slow to look up."""

_UNKNOWN: Final = re.compile(r"\[\w*DATA_SOURCE_NOT_(FOUND|ENABLED)\]")


def check_format(session: SparkSession, place: str, name: str, *also: str) -> None:
    """Raises InputError for a format that Spark does not know; `also` names further known ones."""
    if name in (*also, *SPARK_FORMATS):
        return
    try:
        session.read.format(name).load()
    except (PySparkException, Py4JJavaError) as error:  # What is known complains of other things.
        if _UNKNOWN.search(str(error)):
            known = ", ".join(dict.fromkeys((*also, *SPARK_FORMATS)))
            package = "one whose package Spark has, by --conf spark.jars.packages=…"
            reason = f"found the format {name!r}, expected {known}, or {package}"
            raise InputError(place, reason) from None
