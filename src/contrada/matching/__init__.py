"""The index of subscriptions by content: `index.Index`.

`docs/matching.md` draws the index and states its invariants.
"""
