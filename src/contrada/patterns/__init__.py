"""Finding the sequences of notifications that patterns ask for."""

from contrada.patterns.matcher import Match, PatternMatcher

__all__ = ["Match", "PatternMatcher"]
