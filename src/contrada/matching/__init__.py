"""Finding all matching subscriptions, and the sequences that patterns ask for.

`docs/matching.md` draws the index and states its invariants.
"""

from contrada.matching.index import Index, IndexStatistics
from contrada.matching.patterns import Match, PatternMatcher

__all__ = ["Index", "IndexStatistics", "Match", "PatternMatcher"]
