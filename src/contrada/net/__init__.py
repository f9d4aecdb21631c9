"""Brokers over TCP: the wire protocol, the broker and its client.

`wire` is the protocol without input and output; `broker` serves it and `client` uses it.
"""
