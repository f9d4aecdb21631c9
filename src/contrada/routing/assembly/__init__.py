"""Patterns in the network: which server assembles which parts, and the messages about it.

- `assembler`: the requesters of patterns, and the parts that go to neighbours
- `held`: all patterns of a server, and how they go on with time
- `split`: one pattern, and which parts neighbours assemble
- `segments`: what is delegated, and what is said to delegates
- `phases`: how far a pattern is delegated, with the table of transitions
- `source_map`: from where notifications can come
"""
