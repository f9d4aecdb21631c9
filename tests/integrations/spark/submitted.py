"""A program for `spark-submit --py-files`: prints what it finds as JSON."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

import contrada
from contrada.integrations.spark import Base, register, route, to_notifications
from contrada.integrations.spark.spark_session import cause_of


def main() -> None:
    """Matches by both ways, in workers and without them."""
    spark = SparkSession.builder.getOrCreate()
    frame = spark.createDataFrame([(n,) for n in range(40)], "n int")
    wishes = {f"{n}": f"n = {n}" for n in range(0, 40, 2)}
    found: dict[str, object] = {"driver": contrada.__file__}
    register(spark)
    with TemporaryDirectory() as folder:
        base = Base(wishes, folder=Path(folder))
        for way in ("predicates", "index"):
            try:
                rows = frame.transform(route(base, way=way)).collect()
                found[way] = sorted([row.n, row.subscription] for row in rows)
            except Exception as error:  # noqa: BLE001 - shown by the test
                found[way] = cause_of(str(error))
    if isinstance(found["index"], list):
        found["packed"] = frame.transform(to_notifications()).where("reason is null").count()
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
