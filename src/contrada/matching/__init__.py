"""Finding all matching subscriptions."""

from contrada.matching.index import Index

__all__ = ["Index"]
