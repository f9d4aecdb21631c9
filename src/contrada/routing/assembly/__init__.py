"""Patterns in the network: what of them is assembled where, and what servers say of that.

- `assembler`: who asks for patterns, and which parts go to neighbours
- `held`: all patterns of a server, and how they go on with time
- `split`: one pattern, and which parts neighbours assemble
- `segments`: what is delegated, and what is said to delegates
- `phases`: how far a pattern is delegated, with the table of transitions
- `outlook`: from where notifications can come
"""
