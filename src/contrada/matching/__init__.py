"""The index of subscriptions by content: `index.Index`.

`docs/matching.md` draws the index and states its invariants.
"""

from functools import partial

from contrada.renamed_modules import former_name

__getattr__ = partial(former_name, __name__)
