"""Matching of patterns: sequences of notifications.

- `pattern_engine`: many patterns fed from one buffer, with and without a service
- `pattern_assembly`: one pattern assembled from parts of several servers
- `runs`: the runs of one pattern, used by both, and matches
- `reorder_buffer`: notifications in order of time
- `array_runs`: many patterns over batches of rows
"""

from contrada.patterns.runs import Match

__all__ = ["Match"]
