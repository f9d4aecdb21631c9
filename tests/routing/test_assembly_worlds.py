"""Patterns in the network have the matches of one central matcher, under all changes."""

import pytest

from tests.routing.assembly_worlds import run_world


@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(40, 300), marks=pytest.mark.slow)], ids=["few", "more"]
)
def test_the_network_matches_as_one_matcher(seeds: range) -> None:
    """A match would be lost, invented or doubled by a delegation or a hand-over."""
    matches = delegated = 0
    for seed in seeds:
        found = run_world(seed, validate=seed % 5 == 0)
        matches += found[0]
        delegated += found[1]
    assert matches > len(seeds), "the worlds must hold matches"
    assert delegated > len(seeds) / 2, "patterns must be delegated"
