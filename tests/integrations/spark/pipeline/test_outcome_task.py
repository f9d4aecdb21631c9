"""Outcomes of Spark rows: equal in columns and one by one."""

import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from contrada import Notification
from contrada.integrations.files import ReadOptions
from contrada.integrations.spark import Base
from contrada.integrations.spark.pipeline import outcome_task
from contrada.integrations.spark.pipeline.outcome_task import (
    OUTCOME,
    SparkRowReader,
    SparkRows,
    outcome_of,
)
from contrada.integrations.spark.transforms.notification_transform import RowBuilder
from contrada.model import Envelope, to_msgpack
from contrada.model.codec import notification_from_msgpack

WISHES = {"all": "n any", "more": "n > 2", "text": "s = 'null'", "late": "@time > 0"}
AT = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)

LINES = (
    '{"n": 1, "at": "2026-01-01T00:00:00Z", "s": "a\\nb"}',
    '{"n": -0.0, "at": "2026-01-01T00:00:00.000001Z", "s": "null", "x": null}',
    '{"n": {"$number": "NaN"}, "at": "0001-01-01T00:00:00Z", "s": "\\u2028é\\u0000"}',
    "no object",
    '{"n": [3, 2, 3], "s": {"$bytes": "00ff"}, "at": "9999-12-31T23:59:59.999999Z"}',
    '{"n": {"$number": "-Infinity"}, "at": "1900-01-01T00:00:00Z"}',
    '{"n": 9223372036854775807, "at": "2026-01-01T00:00:00Z", "a": {"b": {"c": true}}}',
    '{"n": 1e300, "at": "2026-01-01T00:00:00Z", "l": [{"in": 1}]}',
    '{"m": 1, "at": "2026-01-01T00:00:00Z"}',
    '{"n": 3, "e": [], "at": "2026-01-01T00:00:00Z", "names": "unmet"}',
    '{"n": 3}',
)


def wide(reading: ReadOptions) -> tuple[RowBuilder, pa.RecordBatch]:
    """Columns of all types, with NULL and bad rows."""
    columns = {
        "n": pa.array([1, None, 3, 2**62, -5, 3]),
        "f": pa.array([-0.0, math.nan, math.inf, 1e-7, None, 0.1]),
        "s": pa.array(["null", "", None, "é\n", '"', "s"]),
        "b": pa.array([True, False, None, True, True, False]),
        "at": pa.array([AT, AT, None, AT, AT, AT], pa.timestamp("us", tz="UTC")),
        "l": pa.array([None, [1, 2], [], [2, 2], None, None], pa.list_(pa.int64())),
        "raw": pa.array([b"\xff", None, None, b"", None, b"x"]),
    }
    kinds = ("integer", "double", "text", "bool", "time", "several", "converted")
    return RowBuilder("wide", reading, tuple(columns), kinds), pa.record_batch(columns)


def json_lines(reading: ReadOptions) -> tuple[RowBuilder, pa.RecordBatch]:
    """Texts of all JSON forms."""
    reading = replace(reading, types={"at": "time", **reading.types})
    return RowBuilder("json", reading), pa.record_batch({"0": pa.array([*LINES, None, *LINES])})


def packed(reading: ReadOptions) -> tuple[RowBuilder, pa.RecordBatch]:
    """Packed notifications with envelopes and bodies, also in other encodings."""
    found = [
        to_msgpack(Notification({"n": n}, body=b"x" * n, envelope=Envelope(time_us=time, id="i")))
        for n, time in enumerate((None, 0, -1, 2**50))
    ]
    # A number of 32 bits with a point, and a time with a longer header.
    found.append(found[0].replace(b"\xa1n\x00", b"\xa1n\xca\x40\x80\x00\x00"))
    found.append(found[1].replace(b"\xa1n\x01", b"\xa1n\xc7\x0c\xff" + bytes(12)))
    return RowBuilder("packed", reading), pa.record_batch({"0": pa.array([*found, b"no", None])})


def one_by_one(making: RowBuilder, batch: pa.RecordBatch, base: Base) -> list[dict[str, Any]]:
    """Returns the expected outcome of each row."""
    made = making.build(batch)
    wishes = base.interests or {}
    rows = []
    for packed, reason, text in zip(*(each.to_pylist() for each in made[:3]), strict=True):
        row: dict[str, Any] = dict.fromkeys(OUTCOME.names) | {"source": "rows"}
        if packed is None:
            rows.append(row | {"reason": reason, "text": text})
            continue
        notification = notification_from_msgpack(packed)
        met = [at for at, wish in enumerate(wishes.values()) if wish.matches(notification)]
        if met:
            told = outcome_of(notification)
            rows.append(row | told | {"subscriptions": met})
    return rows


@pytest.mark.parametrize(
    "reading", [ReadOptions(), ReadOptions(time="at")], ids=["untimed", "timed"]
)
@pytest.mark.parametrize("made_of", [wide, json_lines, packed])
@pytest.mark.parametrize("at_once", [1, 2, 1000])
def test_outcomes_in_columns_equal_single_ones(
    made_of: Any,
    reading: ReadOptions,
    at_once: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Columns of outcomes, or their order, would depend on the other rows of a batch."""
    monkeypatch.setattr(outcome_task, "OUTCOMES_MAX", at_once)
    base = Base(WISHES, folder=tmp_path)
    making, batch = made_of(reading)
    reader = SparkRowReader(SparkRows("rows", making), base.saved)
    batches = list(reader.outcomes(batch))
    assert all(each.schema == OUTCOME and 0 < each.num_rows <= at_once for each in batches)
    expected = one_by_one(making, batch, base)
    found = [row for each in batches for row in each.to_pylist()]
    assert found == expected
    assert any(row["attributes"] for row in found)
    (counts,) = (row for each in reader.finish() for row in each.to_pylist())
    bad = sum(row["reason"] is not None for row in expected)
    assert (counts["read"] + counts["bad"], counts["bad"]) == (len(making.build(batch)[0]), bad)


def test_seen_names_are_removed_from_unmet(tmp_path: Path) -> None:
    """An option's name would count as seen in a text, or as unseen in a late row."""
    reading = ReadOptions(
        types={"names": "text", "unmet": "text", "a.b.c": "text", "never": "text"}
    )
    making, batch = json_lines(reading)
    reader = SparkRowReader(SparkRows("rows", making), Base(WISHES, folder=tmp_path).saved)
    assert list(reader.outcomes(batch))
    (counts,) = (row for each in reader.finish() for row in each.to_pylist())
    assert counts["unmet"] == ["never", "unmet"]
