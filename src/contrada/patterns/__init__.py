"""Finding the sequences of notifications that patterns ask for.

- `engine`: many patterns fed from one buffer
- `assembly`: one pattern whose parts come from several sides
- `matcher`: patterns by hand, without a service
- `runs`: the runs of one pattern, which both fill, and matches
- `reordering`: putting what comes into the order of time
"""

from contrada.patterns.runs import Match

__all__ = ["Match"]
