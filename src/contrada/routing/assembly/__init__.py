"""The assembly of patterns in the network: their delegation to servers near the publishers.

- `assembler`: the requesters of patterns, and the delegation of segments
- `held_patterns`: all patterns of a server, and their progress with time
- `split_pattern`: one pattern, and its segments
- `delegated_segments`: the delegated segments, and the messages to delegates
- `delegation_phase`: the progress of a delegation, with the table of transitions
- `source_map`: the origins of notifications
"""
