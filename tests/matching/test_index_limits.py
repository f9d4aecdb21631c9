"""Limits of an index: a value that each index is given."""

import dataclasses

import pytest

from contrada.matching.index import Index
from contrada.matching.index_limits import IndexLimits


def test_limits_are_values() -> None:
    """One index could change the limits of another, or two equal values would differ."""
    limits = IndexLimits(seen_min=7)
    assert limits == dataclasses.replace(IndexLimits(), seen_min=7) != IndexLimits()
    with pytest.raises(dataclasses.FrozenInstanceError):
        limits.seen_min = 8  # type: ignore[misc]


def test_limits_are_named_by_keyword() -> None:
    """A call would set another limit after a field was added."""
    with pytest.raises(TypeError, match="positional"):
        IndexLimits(1)  # type: ignore[call-arg]
    assert len(Index[int](limits=IndexLimits(looked_min=1))) == 0
