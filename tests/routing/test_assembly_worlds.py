"""Patterns in the network match what one central matcher does, whatever changes meanwhile."""

from tests.routing.assembly_worlds import run_world

WORLDS = 150


def test_the_network_matches_as_one_matcher() -> None:
    """A match would be lost, invented or doubled where a pattern is delegated, or handed over."""
    matches = delegated = 0
    for seed in range(WORLDS):
        found = run_world(seed, validate=seed % 5 == 0)
        matches += found[0]
        delegated += found[1]
    assert matches > WORLDS, "the worlds must hold matches"
    assert delegated > WORLDS / 2, "patterns must be delegated"
