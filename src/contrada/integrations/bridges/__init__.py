"""Bridges to other messaging systems: the relay in `bridge`, each kind of them in a `…_peer`."""
