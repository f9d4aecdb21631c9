"""The assembly of patterns in the network: their delegation to servers near the publishers.

- `assembler`: the requesters of patterns, and the delegation of segments
- `held_patterns`: all patterns of a server, their sources, and their progress with time
- `split_pattern`: one pattern, its delegated segments, and the messages to delegates
"""
