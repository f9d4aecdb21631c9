"""Patterns in the network: what of them is assembled where, and what servers say of that.

- `assembler`: all patterns of a server
- `split`: one pattern, and which parts neighbours assemble
- `segments`: what is delegated, and what is said to delegates
- `phases`: how far a pattern is delegated, with the table of transitions
- `outlook`: from where notifications can come
- `actions`: what the router is asked to do
"""
