"""Pipelines with results at addresses, in another Hadoop file system."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from contrada.connections import connect_sync
from contrada.errors import InputError
from contrada.integrations.spark.pipeline import pipeline_run as running
from contrada.integrations.spark.pipeline import pipeline_stream
from contrada.integrations.spark.pipeline.hadoop_paths import HadoopPath, is_address
from contrada.integrations.spark.pipeline.match_publisher import publish_rest
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, read_pipeline
from contrada.integrations.spark.pipeline.pipeline_run import run_pipeline
from contrada.integrations.spark.pipeline.pipeline_stream import run_stream
from contrada.integrations.spark.pipeline.preflight import check_places, plan_lines
from contrada.integrations.spark.pipeline.run_folder import (
    LOCK_LEASE_S,
    PROGRESS_FILE,
    current_run,
    delete_unfinished,
    lock_output,
    new_run,
    read_state,
    repair,
    unfinished_run,
    write_atomically,
)
from contrada.integrations.spark.transforms.detection import detection_statistics
from tests.integrations.spark.pipeline.test_pipeline_stream import give, matched
from tests.net.processes import serving

DESCRIPTION = """
subscriptions = "subs"
output = "{address}/out"

[[source]]
name = "rows"
format = "jsonl"
paths = ["in/*.jsonl"]
types = { at = "time" }
time = "at"

[[pattern]]
name = "rise"
pattern = "n = 1 -> n = 2 by key"

[parameters]
address = ""
"""

STREAM = f"""
mode = "stream"
checkpoint = "{{address}}/checkpoint"
{DESCRIPTION}
"""


class EndedError(Exception):
    """Ends a driver in these tests."""


@pytest.fixture
def address(spark: SparkSession, tmp_path: Path) -> HadoopPath:
    """A table of mounts that leads to `there` below the test's folder."""
    (tmp_path / "there").mkdir()
    table = f"mounts{tmp_path.stat().st_ino}"
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    conf.set(f"fs.viewfs.mounttable.{table}.link./x", (tmp_path / "there").as_uri())
    return HadoopPath(f"viewfs://{table}/x")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A description of a pipeline, with one file."""
    (tmp_path / "in").mkdir()
    (tmp_path / "subs").write_text("low: n < 2\n")
    (tmp_path / "p.toml").write_text(DESCRIPTION)
    (tmp_path / "s.toml").write_text(STREAM)
    give(tmp_path, "a", {"n": 1, "key": "x"}, {"n": 2, "key": "x"}, {"n": 0, "key": "x"}, "{")
    return tmp_path


def described(folder: Path, address: HadoopPath, name: str = "p") -> Pipeline:
    return read_pipeline(folder / f"{name}.toml", {"address": str(address)})


def rows_in(folder: Path, what: str) -> int:
    """Returns the number of rows, read as by any program that knows the mounts."""
    rows: int = pq.read_table(folder / "there" / "out" / what).num_rows
    return rows


def test_a_run_leaves_its_results_at_an_address(
    spark: SparkSession, folder: Path, address: HadoopPath
) -> None:
    """Results could be on one machine only, or be lost by the next run."""
    pipeline = described(folder, address)
    assert f"into {address}/out: matches" in "\n".join(plan_lines(spark, pipeline, None))
    assert not (folder / "there" / "out").exists(), "a dry run writes nothing"
    first = run_pipeline(spark, pipeline)
    assert first.output == f"{address}/out"
    assert spark.read.parquet(f"{address}/out/matches").count() == 2
    assert (rows_in(folder, "quarantine"), rows_in(folder, "patterns")) == (1, 1)
    (folder / "subs").write_text("low: n < 2\nmore: n >= 2\n")

    def ended(*arguments: object) -> None:
        raise EndedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.SparkRun, "write", ended)
        with pytest.raises(EndedError):
            run_pipeline(spark, described(folder, address))
    assert rows_in(folder, "matches") == 2, "what was there stays"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.SparkRun, "match", ended)  # It is not matched again.
        second = run_pipeline(spark, described(folder, address), resume=True)
    assert rows_in(folder, "matches") == 3
    report = json.loads((folder / "there" / "out" / "report.json").read_text())
    assert report["run"] == second.run != first.run
    assert not any((folder / "there" / "out" / ".runs").iterdir())


def test_matches_at_an_address_are_published_once(
    spark: SparkSession, folder: Path, address: HadoopPath
) -> None:
    """Unpublished matches would be lost, or all of them published again."""
    pipeline = described(folder, address)
    with serving("--port", "0") as (_, service):
        with connect_sync(service):
            assert run_pipeline(spark, pipeline, publish=service).published == 2
        assert publish_rest(spark, pipeline, service) == {"rows": 0}
        write_atomically(address / "out" / PROGRESS_FILE, b'{"sources": {}}')
        assert publish_rest(spark, pipeline, service) == {"rows": 2}
    told = json.loads((folder / "there" / "out" / PROGRESS_FILE).read_text())
    assert (told["sources"], told["address"]) == ({"rows": 2}, service)


def test_a_stream_at_an_address(spark: SparkSession, folder: Path, address: HadoopPath) -> None:
    """The state of a stream would be lost with the machine."""
    first = run_stream(spark, described(folder, address, "s"))
    assert (first.batches, first.sources[0].bad) == (1, 1)
    (folder / "subs").write_text("low: n < 2\nhigh: n >= 5\n")
    give(folder, "b", {"n": 1, "key": "y"}, {"n": 7, "key": "y"}, {"n": 2, "key": "y"})
    do = pipeline_stream._MicroBatches._add

    def ended(*arguments: Any) -> None:
        do(*arguments)
        raise EndedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_stream._MicroBatches, "_add", ended)
        with pytest.raises(EndedError):
            run_stream(spark, described(folder, address, "s"))
    (folder / "subs").write_text("other: n = 100\n")  # It takes the version that it took.
    second = run_stream(spark, described(folder, address, "s"))
    assert second.matches == {"low": 3, "high": 1}
    assert second.batches == 2
    there = folder / "there"
    assert matched(there) == [
        (0, "low", 0, 1),
        (0, "low", 1, 1),
        (1, "high", 7, 2),
        (1, "low", 1, 2),
    ]
    assert second.patterns == {"rise": 1} == {"rise": rows_in(folder, "patterns")}
    assert detection_statistics(str(there / "checkpoint")).batch == 1
    assert not [*there.glob("out/.batch/*/*.parquet")]
    with pytest.raises(InputError, match="results of a stream"):
        run_pipeline(spark, described(folder, address))


def written(output: HadoopPath, text: str) -> None:
    """Returns a run that has written its results, and is not shown yet."""
    run = new_run(output)
    for part in range(2):
        (run.output / ".runs" / run.name / "matches" / f"part-{part}").write_bytes(text.encode())
    write_atomically(run.output / ".runs" / run.name / PROGRESS_FILE, b"{}")


def shown(output: HadoopPath) -> set[str]:
    """Returns the results that a reader finds after the moves."""
    return {(output / "matches" / f"part-{n}").read_bytes().decode() for n in range(2)}


def killed_at(step: int, patch: pytest.MonkeyPatch, show: Callable[[], object]) -> bool:
    """Whether the run was killed at its nth change."""
    done = 0

    def counted(change: Callable[..., object]) -> Callable[..., object]:
        def changed(*arguments: object, **options: object) -> object:
            nonlocal done
            done += 1
            if done > step:
                raise EndedError
            return change(*arguments, **options)

        return changed

    with patch.context() as inside:
        for name in ("unlink", "replace", "write_bytes"):
            inside.setattr(HadoopPath, name, counted(getattr(HadoopPath, name)))
        try:
            show()
        except EndedError:
            return True
    return False


def test_results_are_there_wherever_a_run_is_killed(
    address: HadoopPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results would be lost or mixed, also where a store moves folders file by file."""
    replace = HadoopPath.replace

    def one_by_one(path: HadoopPath, target: HadoopPath) -> None:
        if path.is_dir():
            target.mkdir()
            for each in path.iterdir():
                each.replace(target / each.name)
            path.unlink()
        else:
            replace(path, target)

    monkeypatch.setattr(HadoopPath, "replace", one_by_one)
    step, was_killed = 0, True
    while was_killed:
        output = address / str(step)
        written(output, "old")
        unfinished_run(output).show()  # type: ignore[union-attr]
        assert shown(output) == {"old"}
        written(output, "new")
        run = unfinished_run(output)
        assert run is not None
        was_killed = killed_at(step, monkeypatch, run.show)
        repair(output)
        left = unfinished_run(output)
        if left is not None:
            assert shown(output) == {"old"}
            left.show()
        assert shown(output) == {"new"}
        found = current_run(output)
        assert found is not None
        assert (found.name, str(found.path)) == (run.name, str(output))
        assert not [*(output / ".runs").iterdir()]
        step += 1
    assert step > 5


def test_unfinished_runs_are_deleted(address: HadoopPath) -> None:
    """Failed runs would fill the store."""
    written(address, "old")
    unfinished_run(address).show()  # type: ignore[union-attr]
    written(address, "failed")
    delete_unfinished(address)
    assert unfinished_run(address) is None
    assert shown(address) == {"old"}


def test_one_run_writes_at_an_address(
    spark: SparkSession, folder: Path, address: HadoopPath
) -> None:
    """Two runs would delete each other's results; or a kill would block the output."""
    output = address / "out"
    lock = folder / "there" / "out" / ".lock"
    with lock_output(output) as check:
        with pytest.raises(InputError, match="another run"), lock_output(output):
            pass
        with pytest.raises(InputError, match="another run"):
            list(plan_lines(spark, described(folder, address), None))
        check()
        before = lock.stat().st_mtime - LOCK_LEASE_S - 1
        os.utime(lock, (before, before))  # As if it had been killed a minute ago.
        with lock_output(output):
            with pytest.raises(InputError, match="has taken the lock"):
                check()
            with pytest.raises(InputError, match="another run"), lock_output(output):
                pass
    assert [each.name for each in (address / "out").iterdir()] == []


def test_a_run_whose_lock_is_taken_shows_nothing(
    spark: SparkSession, folder: Path, address: HadoopPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs would mix their results after a pause of one."""
    write = running.SparkRun.write

    def taken(*arguments: Any) -> Any:
        (address / "out" / ".lock").write_bytes(b"another")
        return write(*arguments)

    monkeypatch.setattr(running.SparkRun, "write", taken)
    with pytest.raises(InputError, match="has taken the lock"):
        run_pipeline(spark, described(folder, address))
    assert not (folder / "there" / "out" / "matches").exists()


def test_files_at_addresses_are_whole(
    spark: SparkSession, address: HadoopPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An incomplete file would be read as the state of a run."""
    file = address / "a.json"
    write_atomically(file, b"[1]")
    write = HadoopPath.write_bytes

    def cut(path: HadoopPath, content: bytes) -> None:
        write(path, content[:1])
        raise EndedError

    with monkeypatch.context() as patch:
        patch.setattr(HadoopPath, "write_bytes", cut)
        with pytest.raises(EndedError):
            write_atomically(file, b"[2]")
    assert read_state(file, list[int]) == [1]
    assert read_state(address / "none", list[int]) is None
    assert [each.name for each in address.glob("*.json")] == ["a.json"]
    with pytest.raises(FileExistsError):
        file.write_bytes(b"", is_new=True)
    with pytest.raises(FileNotFoundError):
        (address / "none").unlink()


def test_a_store_shows_a_file_when_it_is_closed(
    address: HadoopPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store deletes before it copies: a kill in between would lose the file."""
    write_atomically(address / "a.json", b"[1]")
    # Here another capability replaces that of stores.
    monkeypatch.setattr(
        "contrada.integrations.spark.pipeline.hadoop_paths._ABORTABLE",
        "fs.capability.paths.permissions",
    )
    monkeypatch.delattr(HadoopPath, "replace")
    write_atomically(address / "a.json", b"[2]")
    assert read_state(address / "a.json", list[int]) == [2]


@pytest.mark.parametrize(
    ("place", "said"), [("nosuch://a/b", "nosuch"), ("viewfs://nowhere/x", "nowhere")]
)
def test_unknown_file_systems_are_reported_at_once(
    spark: SparkSession, folder: Path, place: str, said: str
) -> None:
    """A mistake in an address would show after hours of matching."""
    with pytest.raises(InputError, match=said) as caught:
        run_pipeline(spark, described(folder, HadoopPath(place)))
    assert caught.value.source.startswith(place)


def test_foreign_files_at_an_address_are_kept(
    spark: SparkSession, folder: Path, address: HadoopPath
) -> None:
    """A run would replace foreign files."""
    write_atomically(address / "out" / "letters", b"")
    with pytest.raises(InputError, match="found letters, expected a folder of its own"):
        run_pipeline(spark, described(folder, address))


def test_addresses_are_refused_behind_connect(folder: Path) -> None:
    """A session without a driver would fail in the middle of a run."""
    pipeline = described(folder, HadoopPath("hdfs://here/x"))
    with pytest.raises(InputError, match="needs the driver of Spark here"):
        check_places(SimpleNamespace(), pipeline)  # type: ignore[arg-type]


def test_parts_of_addresses() -> None:
    """Results would be written to another place."""
    place = HadoopPath("s3a://bucket/a") / "b.json"
    assert (str(place), place.name, place.stem) == ("s3a://bucket/a/b.json", "b.json", "b")
    assert str(place.parent.parent) == "s3a://bucket/"
    assert place == HadoopPath(str(place))
    assert len({place, place.absolute()}) == 1
    assert [is_address(each) for each in ("file:/a", "a/b", "a:b", "/a:/b")] == [True] + [False] * 3
    with pytest.raises(InputError, match="found no scheme"):
        HadoopPath("a/b")
