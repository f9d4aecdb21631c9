"""Publishing the matches of a run: on each engine, in one order, in repeatable jobs."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from contrada.connections import connect_sync
from contrada.errors import ConnectionFailedError, ServiceError
from contrada.integrations.spark.connector.frame_writers import SequenceNumbers
from contrada.integrations.spark.pipeline import match_publisher, pipeline_run
from contrada.integrations.spark.pipeline.match_publisher import publish_rest
from contrada.integrations.spark.pipeline.pipeline_description import (
    Pipeline,
    PipelineLimits,
    read_pipeline,
)
from contrada.integrations.spark.pipeline.pipeline_run import run_pipeline
from contrada.model.codec import notification_from_msgpack
from tests.net.processes import serving

ROWS = 30
FILES = 3

DESCRIPTION = """
subscriptions = "subs"
output = "out"
delivery = "{delivery}"
[[source]]
name = "rows"
format = "csv"
paths = ["*.csv"]
[[source]]
name = "others"
format = "parquet"
paths = ["in.parquet"]
"""


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    """Files of matching rows, and a table."""
    (tmp_path / "subs").write_text("all: n any\nmany: n > 5\n")
    for file in range(FILES):
        rows = "".join(f"{n}\n" for n in range(file * ROWS, (file + 1) * ROWS))
        (tmp_path / f"{file}.csv").write_text(f"n\n{rows}")
    table = spark.createDataFrame([(n,) for n in range(-ROWS, 0)], "n INT")
    table.write.parquet(str(tmp_path / "in.parquet"))
    return tmp_path


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A broker with a store."""
    with serving("--port", "0", "--store", str(tmp_path / "store.db")) as (_, address):
        yield address


def described(folder: Path, delivery: str = "reliable") -> Pipeline:
    (folder / "p.toml").write_text(DESCRIPTION.format(delivery=delivery))
    return read_pipeline(folder / "p.toml")


def published(events: Any, service: Any) -> list[Any]:
    """Returns the received notifications up to a final one."""
    service.publish({"n": 1000})
    found = []
    while (n := events.next(timeout_s=30)["n"]) != 1000:
        found.append(n)
    return found


@pytest.mark.parametrize("at_once", [7, 1000])
def test_a_source_is_published_in_its_order(
    spark: SparkSession, folder: Path, address: str, at_once: int
) -> None:
    """Subscribers would see rows in any order, depending on their number."""
    steps_done: list[tuple[str, int, int]] = []
    with connect_sync(address) as service, service.subscribe("n any") as events:
        summary = run_pipeline(
            spark,
            replace(described(folder), limits=PipelineLimits(published_at_once=at_once)),
            publish=address,
            on_progress=lambda *each: steps_done.append(each),
        )
        found = published(events, service)
    assert found[: FILES * ROWS] == list(range(FILES * ROWS))
    assert sorted(found[FILES * ROWS :]) == list(range(-ROWS, 0))
    assert [each.published for each in summary.sources] == [FILES * ROWS, ROWS]
    steps = [
        done for step, done, total in steps_done if (step, total) == ("publish rows", FILES * ROWS)
    ]
    assert steps[0] == 0
    assert steps[-1] == FILES * ROWS
    assert len(set(steps)) > (2 if at_once < ROWS else 1)
    assert not [*folder.glob("out/.runs/*/.publishing")]


class EndedError(Exception):
    """Stands for the end of a process."""


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("delivery", "first", "second"),
    [
        ("reliable", "spark", "spark"),
        ("certified", "spark", "spark"),
        ("certified", "local", "local"),
        ("reliable", "spark", "local"),
        ("reliable", "local", "spark"),
    ],
)
def test_an_interrupted_job_is_published_once(
    spark: SparkSession,
    folder: Path,
    address: str,
    delivery: str,
    first: str,
    second: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Matches of a published, unrecorded job would be delivered twice, by the other engine too."""
    engines = {"spark": spark, "local": None}
    keep = match_publisher._MatchPublisher._save_state

    def kept(of: match_publisher._MatchPublisher) -> None:
        if sum(of.state.sources.values()) > 40:
            raise EndedError
        keep(of)

    pipeline = replace(described(folder, delivery), limits=PipelineLimits(published_at_once=13))
    run_pipeline(spark, pipeline)
    with connect_sync(address) as service, service.subscribe("n any") as events:
        with monkeypatch.context() as patch:
            patch.setattr(match_publisher._MatchPublisher, "_save_state", kept)
            with pytest.raises(EndedError):
                publish_rest(engines[first], pipeline, address)
        rest = publish_rest(engines[second], pipeline, address)
        assert rest["others"] == ROWS
        found = published(events, service)
        assert publish_rest(engines[first], pipeline, address) == {"rows": 0, "others": 0}
    assert sorted(found) == list(range(-ROWS, FILES * ROWS))
    assert found[: FILES * ROWS] == list(range(FILES * ROWS))


@pytest.mark.parametrize(("first", "second", "rest"), [(13, 100_000, 51), (100_000, 13, 90)])
def test_a_changed_limit_leaves_the_jobs_of_an_interrupted_publication(
    spark: SparkSession,
    folder: Path,
    address: str,
    first: int,
    second: int,
    rest: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker would know its numbers for other rows: some would be lost, others sent twice."""
    keep = match_publisher._MatchPublisher._save_state

    def kept(of: match_publisher._MatchPublisher) -> None:
        if sum(of.state.sources.values()) > 40:
            raise EndedError
        keep(of)

    pipeline = described(folder)
    run_pipeline(spark, pipeline)
    before = replace(pipeline, limits=PipelineLimits(published_at_once=first))
    now = replace(pipeline, limits=PipelineLimits(published_at_once=second))
    with connect_sync(address) as service, service.subscribe("n any") as events:
        with monkeypatch.context() as patch:
            patch.setattr(match_publisher._MatchPublisher, "_save_state", kept)
            with pytest.raises(EndedError):
                publish_rest(None, before, address)
        assert publish_rest(None, now, address) == {"rows": rest, "others": ROWS}
        assert sorted(published(events, service)) == list(range(-ROWS, FILES * ROWS))


@pytest.mark.quick_first
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_refusal_of_the_broker_is_reported(
    spark: SparkSession, folder: Path, engine: str
) -> None:
    """The user would see a traceback without a remedy, or lose the count."""
    run_pipeline(spark, described(folder, "certified"))
    session = spark if engine == "spark" else None
    with serving("--port", "0", "--store", "memory:") as (process, address):
        with pytest.raises(
            ServiceError, match=r"no store: [^;]* gives it one; at least 0 of 90 notif"
        ):
            publish_rest(session, described(folder, "certified"), address)
        process.kill()
        process.wait()
        with pytest.raises(ConnectionFailedError, match=r"at least 0 of 90 .* --resume publishes"):
            publish_rest(session, described(folder), address)


def test_a_local_run_publishes(folder: Path, address: str) -> None:
    """A small run would need Java to publish, or begin its reading without a broker."""
    (folder / "p.toml").write_text(
        DESCRIPTION.format(delivery="reliable").partition('[[source]]\nname = "others')[0]
    )
    pipeline = read_pipeline(folder / "p.toml")
    with connect_sync(address) as service, service.subscribe("n any") as events:
        summary = run_pipeline(None, pipeline, publish=address)
        assert published(events, service) == list(range(FILES * ROWS))
    assert (summary.published, summary.sources[0].published) == (FILES * ROWS, FILES * ROWS)
    with pytest.raises(ConnectionFailedError):
        run_pipeline(None, replace(pipeline, output=folder / "other"), publish="contrada://[::1]:9")
    assert not (folder / "other").exists()


def test_sources_in_another_order_are_published_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one source would be published twice, in place of those of another."""
    sources = {name: f'[[source]]\nname = "{name}"\nformat = "csv"\n' for name in "ab"}
    for name, first in (("a", 0), ("b", 100)):
        sources[name] += f'paths = ["{name}.csv"]\n'
        (tmp_path / f"{name}.csv").write_text(f"n\n{first}\n{first + 1}\n{first + 2}\n")
    (tmp_path / "subs").write_text("all: n any\n")
    head = 'subscriptions = "subs"\noutput = "out"\n'
    sent: list[Any] = []

    def publish(_: Any, numbers: SequenceNumbers, rows: Iterable[Any]) -> None:
        if len(sent) == 3:
            sent.append(None)
            raise ConnectionFailedError("contrada://b", "it is away")
        packed = [each for batch in rows for each in batch["notification"].to_pylist()]
        sent.append([notification_from_msgpack(each)["n"] for each in packed])

    def run(*names: str) -> Pipeline:
        text = head + "".join(sources[each] for each in names)
        (tmp_path / "p.toml").write_text(text)
        return replace(
            read_pipeline(tmp_path / "p.toml"), limits=PipelineLimits(published_at_once=2)
        )

    monkeypatch.setattr(match_publisher, "publish", publish)
    monkeypatch.setattr(pipeline_run, "check_reachable", lambda address: None)
    with pytest.raises(ConnectionFailedError, match="at least 2 of 3 notifications of b"):
        run_pipeline(None, run("a", "b"), publish="contrada://b")
    assert publish_rest(None, run("b", "a"), "contrada://b") == {"a": 0, "b": 1}
    assert sent == [[0, 1], [2], [100, 101], None, [102]]
