"""Brokers that are fed nearly good frames; see `tests.net.fuzz`, which runs for longer."""

import asyncio
from itertools import pairwise

import pytest

from contrada.net.wire.connection import CLIENT, NEIGHBOUR
from tests.net.fuzz import FRAMES_PER_STREAM, Fuzz, Mutator
from tests.net.memory import ARENA_KB, is_flat

FRAMES = 3_000


@pytest.mark.quick_first
@pytest.mark.parametrize("seed", range(3))
def test_hostile_frames_harm_nobody(seed: int) -> None:
    """A stranger could end a broker, or fill its memory, with a few bytes."""
    fuzz = Fuzz(seed)
    asyncio.run(fuzz.run(FRAMES))
    assert fuzz.frames >= FRAMES


@pytest.mark.parametrize("role", [CLIENT, NEIGHBOUR])
def test_streams_are_the_same_for_the_same_seed(role: str) -> None:
    """A failure could not be repeated."""
    one, same, other = Mutator(1), Mutator(1), Mutator(2)
    streams = [[each.stream(role) for _ in range(20)] for each in (one, same, other)]
    assert streams[0] == streams[1] != streams[2]
    assert all(1 < len(each) <= FRAMES_PER_STREAM for each in streams[0])
    assert any(a != b for a, b in pairwise(streams[0]))


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([50_000] * 20, True),
        ([*range(0, 50_000, 5_000), *[50_000] * 10], True),  # Warm, then flat.
        ([50_000 + (n % 2) * 9_000 for n in range(20)], True),  # It rises and falls.
        ([50_000] * 15 + [52_100] * 5, True),  # Two arenas more.
        ([50_000] * 10 + [51_100] * 3 + [52_200] * 7, True),  # One more, and again.
        ([50_000 + n * ARENA_KB for n in range(20)], False),
        ([50_000 + n * 500 + (n % 2) * 300 for n in range(20)], False),
        ([50_000 + n * 10 for n in range(20)], True),  # Less than there is at a time.
    ],
)
def test_growth_is_distinguished_from_movement(samples: list[int], expected: bool) -> None:
    """A leak would pass, or a run that has none would fail."""
    assert is_flat(samples) is expected
