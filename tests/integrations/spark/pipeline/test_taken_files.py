"""The files of a micro-batch, from a log in Spark's format."""

import json
import os
from pathlib import Path

import pytest

from contrada.errors import StoreError
from contrada.integrations.spark.pipeline.worker_files import CHANGED, GONE, TakenFile, files_taken


def log(checkpoint: Path, name: str, *lines: object) -> None:
    """Writes a file of Spark's log."""
    file = checkpoint / "query" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["v1", *map(json.dumps, lines)]))


def taken(entry: int) -> dict[str, object]:
    """Returns a line of an entry."""
    return {"path": f"file:///a/{entry}%20b.csv", "timestamp": 1, "batchId": entry}


def test_the_entries_of_a_micro_batch(tmp_path: Path) -> None:
    """A file that was read would be reported as deleted, or a deleted one not."""
    for batch, last in enumerate((0, 0, 3)):
        log(
            tmp_path, f"offsets/{batch}", {"batchWatermarkMs": 0}, {"topic": 1}, {"logOffset": last}
        )
    for entry in (0, 3):
        log(tmp_path, f"sources/1/{entry}", taken(entry))
    log(tmp_path, "sources/1/2.compact", *map(taken, range(3)))
    log(tmp_path, "sources/1/12.compact", *map(taken, range(13)))
    every = [TakenFile(f"file:///a/{entry} b.csv", 1, entry) for entry in range(4)]
    assert files_taken(tmp_path, 0, 1) == every[:1]
    assert files_taken(tmp_path, 1, 1) == []
    assert files_taken(tmp_path, 2, 1) == every[1:]
    assert files_taken(tmp_path, 2, 0) == files_taken(tmp_path, 2, 2) == []


def test_a_source_that_has_nothing_yet(tmp_path: Path) -> None:
    """A stream of two sources would end with the first file of one of them."""
    log(tmp_path, "offsets/0", {"batchWatermarkMs": 0})
    with (tmp_path / "query" / "offsets" / "0").open("a") as file:
        file.write("\n-")
    assert files_taken(tmp_path, 0, 0) == []


def test_a_log_in_another_format_is_refused(tmp_path: Path) -> None:
    """Deleted files would no longer be reported, silently."""
    with pytest.raises(StoreError, match="offsets/0: the log of a micro-batch is missing"):
        files_taken(tmp_path, 0, 0)
    log(tmp_path, "offsets/0", {"batchWatermarkMs": 0}, {"logOffset": 0})
    with pytest.raises(StoreError, match="sources/0/0: the log of a micro-batch is missing"):
        files_taken(tmp_path, 0, 0)
    (tmp_path / "query" / "offsets" / "0").write_text("v7\n")
    with pytest.raises(StoreError, match="found 'v7', expected v1"):
        files_taken(tmp_path, 0, 0)


def test_missing_and_changed_files(tmp_path: Path) -> None:
    """Each micro-batch would cost another job, or a file that was half written pass in silence."""
    (tmp_path / "a b").touch()
    os.utime(tmp_path / "a b", ns=(0, 1_700_000_000_123_999_999))
    found = TakenFile(f"file://{tmp_path}/a b", 1_700_000_000_123, 0)
    assert found.fault() is None
    os.utime(tmp_path / "a b", ns=(0, 1_700_000_000_124_000_000))
    assert found.fault() == CHANGED
    assert TakenFile(f"file:{tmp_path}/c", 1, 0).fault() == GONE
    assert TakenFile("s3a://b/c", 1, 0).fault() == GONE
