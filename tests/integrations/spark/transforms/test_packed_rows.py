"""The work of workers on batches, without a session."""

import random
from pathlib import Path

import pyarrow as pa

from contrada.integrations.spark import Base
from contrada.integrations.spark.transforms import frames
from contrada.integrations.spark.transforms.packed_rows import WorkerSetup, match_batches
from contrada.model import Filter

ROWS = 4_000


def test_a_large_batch_gives_the_keys_of_each_row_in_the_order_of_the_base(tmp_path: Path) -> None:
    """Keys would be those of another row, or be in the order in which buckets are checked."""
    chance = random.Random(1)
    asked = {
        1_000 - n: Filter(f"kind = 'k{n % 3}' and n > {n % 40}" if n % 2 else f"n = {n % 40}")
        for n in range(300)
    }
    base = Base(asked, folder=tmp_path)
    kinds = [chance.choice(["k0", "k1", "k2", None]) for _ in range(ROWS)]
    numbers = [chance.choice([*range(45), None]) for _ in range(ROWS)]
    setup = WorkerSetup(
        base.saved, ("kind", "n"), (frames.TEXT, frames.INTEGER), None, width=2, places=(0, 1)
    )
    batch = pa.RecordBatch.from_pydict({"kind": kinds, "n": pa.array(numbers, pa.int64())})
    answers = {}
    for kind, number in zip(kinds, numbers, strict=True):
        if (kind, number) not in answers:
            given = {"kind": kind, "n": number}
            held = {name: value for name, value in given.items() if value is not None}
            answers[kind, number] = [key for key, each in asked.items() if each.matches(held)]
    (found,) = match_batches(setup, [batch])
    expected = [answers[pair] for pair in zip(kinds, numbers, strict=True)]
    assert found.column(2).to_pylist() == expected
    assert found.column(1).to_pylist() == numbers
