"""Brokers over TCP: the wire protocol, the broker and its client.

`wire` is the protocol without input and output; `broker` serves it and `client` uses it.
"""

from functools import partial

from contrada.renamed_modules import former_name

__getattr__ = partial(former_name, __name__)
