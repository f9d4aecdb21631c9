"""`FeedDocument`: a feed as it was read once, with its entries."""

import hashlib
from typing import Any, Final, NamedTuple

import msgspec

from contrada.integrations.documents.damaged_document import DamagedPiece

_DIGEST_BYTES: Final = 16


class FeedEntry(NamedTuple):
    """An entry of a feed: digests of its identity and of its version, and its element, or in JSON
    its value.
    """

    identity: str
    version: str
    node: Any


class FeedDocument(NamedTuple):
    """A feed as it was read once.

    `identity` identifies the feed; `entries_name` is the written name of the entries' elements,
    None if the whole document is the only entry. `faults` are the errors of omitted entries.
    """

    format_name: str
    identity: str
    entries_name: str | None
    entries: tuple[FeedEntry, ...]
    root: Any
    faults: tuple[DamagedPiece, ...] = ()
    omitted: tuple[str, ...] = ()
    """The digests of the pieces of `faults`."""


def remembered(feed: FeedDocument) -> FeedDocument:
    """Returns a feed without its document, which is many times as large."""
    entries = tuple(each._replace(node=None) for each in feed.entries)
    return feed._replace(entries=entries, root=None, faults=())


def digest(of: list[Any]) -> str:
    """Returns the digest of some values."""
    return hashlib.blake2b(msgspec.msgpack.encode(of), digest_size=_DIGEST_BYTES).hexdigest()
