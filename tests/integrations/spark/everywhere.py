"""The results of each transform and the connector for the same rows, in any session.

As a program it prints them, for `WHERE FOLDER ADDRESS [NAME …]`. `WHERE` is a master, or `connect`.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from contrada.integrations.spark import (
    Base,
    configure,
    covering,
    detect,
    match,
    plan,
    profile,
    route,
)
from contrada.integrations.spark.spark_session import spark_session
from contrada.model.codec import to_msgpack
from tests.integrations.spark.transforms.sequences import (
    PATTERNS,
    SCHEMA,
    found_in,
    made,
    notification_of,
)
from tests.integrations.spark.transforms.test_cover_worker import some_filters

WISHES: Final = {
    **{f"code {n}": f"code > {n}" for n in range(-10, 10)},
    "up": "is_up = true and host prefix 'a'",
    "no level": "level absent",
    "nocase": "host = nocase 'B'",
    "late": "time > @2023-11-14T22:13:20.000400Z",
}
FEW: Final = {name: WISHES[name] for name in ("code 1", "up", "no level")}
(ROWS,) = made(11, 1, 1_000)

Asked = Callable[[SparkSession, Path, str], Any]


def rows(session: SparkSession) -> DataFrame:
    """Returns the rows with their places, in several partitions."""
    table = pa.Table.from_pylist(ROWS, SCHEMA)
    table = table.append_column("place", pa.array(range(len(ROWS))))
    return session.createDataFrame(table).repartition(4, "place")


def matched(session: SparkSession, folder: Path, address: str) -> Any:
    """Matches by an index, and by predicates."""
    frame = rows(session)
    base = Base(WISHES, folder=folder / "bases")
    assert plan(frame, base, drop=["place"]).way == "index"
    few = Base(FEW, folder=folder / "bases")
    assert plan(frame, few, drop=["place"]).way == "predicates"
    found = frame.transform(match(base)).transform(match(few, column="few")).orderBy("place")
    return [[row["subscriptions"], row["few"]] for row in found.collect()]


def routed(session: SparkSession, folder: Path, address: str) -> Any:
    """Returns a row for each pair."""
    found = rows(session).transform(route(Base(WISHES, folder=folder / "bases")))
    return sorted([row["place"], row["subscription"]] for row in found.collect())


def detected(session: SparkSession, folder: Path, address: str) -> Any:
    """Matches of patterns."""
    found = found_in(rows(session).drop("place").transform(detect(PATTERNS)))
    return sorted([*of[:2], [each.hex() for each in of[2]], n] for of, n in found.items())


def reduced(session: SparkSession, folder: Path, address: str) -> Any:
    """Returns the remaining filters of a base."""
    given = [(n, bytearray(to_msgpack(each))) for n, each in enumerate(some_filters(200))]
    frame = session.createDataFrame(given, "key bigint, filter binary")
    return sorted([row.key, bytes(row.filter).hex()] for row in covering(frame).collect())


def profiled(session: SparkSession, folder: Path, address: str) -> Any:
    """Returns the exact counts."""
    found = rows(session).transform(profile)
    exact = [name for name in found.columns if name in ("attribute", "domain", "values", "share")]
    assert len(exact) > 2
    return sorted(list(row) for row in found.select(*exact).collect())


def published(session: SparkSession, folder: Path, address: str) -> Any:
    """Writes to a broker, and reads it back."""
    data = [(n, to_msgpack(notification_of(row))) for n, row in enumerate(ROWS)]
    frame = session.createDataFrame(data, "place int, notification binary")
    frame = frame.repartition(3, "place").sortWithinPartitions("place")
    options = {"address": address, "durable": "log", "filter": "everything"}
    read = session.read.format("contrada").options(**options)
    read.load().count()  # The subscription begins here.
    write = frame.write.format("contrada").mode("append").options(address=address)
    write.options(delivery="certified", query="everywhere").save()
    wide = read.schema("host STRING, level DOUBLE, code BIGINT, is_up BOOLEAN").load()
    return sorted(map(repr, wide.collect()))


ALL: Final[dict[str, Asked]] = {
    "match": matched,
    "route": routed,
    "detect": detected,
    "covering": reduced,
    "profile": profiled,
    "connector": published,
}


def results(
    session: SparkSession, folder: Path, address: str, names: Iterable[str] = ALL
) -> dict[str, Any]:
    """Returns the results as JSON."""
    found = {name: ALL[name](session, folder, address) for name in names}
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def main(where: str, folder: str, address: str, *names: str) -> None:
    """Prints the results, and for a cluster first the number of processes."""
    with _session(where) as session:
        if where.startswith("spark:"):
            found = session.range(0, 4, 1, 4).mapInArrow(_places, "at long").collect()
            print(len({row["at"] for row in found}))  # noqa: T201
        print(json.dumps(results(session, Path(folder), address, names or ALL)))  # noqa: T201


def _session(where: str) -> AbstractContextManager[SparkSession]:
    if where != "connect":
        return spark_session(master=where)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    return configure(builder).getOrCreate()


def _places(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from (pa.RecordBatch.from_pydict({"at": [os.getppid()]}) for _ in batches)


if __name__ == "__main__":
    main(*sys.argv[1:])
