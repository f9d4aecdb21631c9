"""Finding the sequences of notifications that patterns ask for.

- `matcher`: many patterns by hand, which is an index and the engine
- `engine`: many patterns fed from one buffer
- `assembly`: one pattern whose parts come from several sides
- `runs`: the runs of one pattern, which both fill
- `reordering`: putting what comes into the order of time
"""

from contrada.patterns.matcher import Match, PatternMatcher

__all__ = ["Match", "PatternMatcher"]
