"""The index of subscriptions by content.

`docs/matching.md` draws the index and states its invariants.
"""

from contrada.matching.index import Index, IndexStatistics

__all__ = ["Index", "IndexStatistics"]
