"""`read_json_feed`: feeds in JSON, as documents with entries.

The format is JSON Feed, or any JSON document if `entries` names the array of the entries. An entry
of a JSON Feed has the plain values of its feed, too, as `feed.title`.

Source: JSON Feed 1.1.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from contrada.errors import InputError, LimitError, ParseError
from contrada.integrations.feeds.feed_document import FeedDocument, FeedEntry, digest
from contrada.integrations.files.json_objects import WHOLE_DOCUMENT, decode_value
from contrada.integrations.files.lines import printable
from contrada.model.algebra.nested_objects import OBJECT_DEPTH_MAX

JSON: Final = "json"
"""The format's name."""

ITEMS: Final = "items"
"""The array of entries in a JSON Feed."""

_MARK: Final = "\ufeff".encode()
_VERSION: Final = ("https://jsonfeed.org/version/", "http://jsonfeed.org/version/")
_PLAIN: Final = (str, int, float)


def is_json(data: bytes) -> bool:
    """Whether a feed is JSON, and not XML."""
    return data.removeprefix(_MARK).lstrip()[:1] in (b"{", b"[")


def read_json_feed(
    data: bytes,
    source: str,
    entries: str | None,
    identity: str | None,
    edits: bool,
    entries_max: int,
) -> FeedDocument:
    """Returns the feed of a JSON document. Parameters, cost and errors: as `read_feed`."""
    text = printable(data.removeprefix(_MARK).decode("utf-8", "surrogateescape"))
    root = decode_value(text)
    items = _array(root, source, entries)
    if len(items) > entries_max:
        raise LimitError("feed_entries_max", entries_max)
    has_dates = _is_json_feed(root) and not edits
    found: list[FeedEntry] = []
    for item in items:
        content = digest([_encoded({ITEMS: [item]})])  # As deep as it will be in `only_items`.
        named = _text_at(item, identity or "id") or ("" if identity else _text_at(item, "url"))
        modified = _text_at(item, "date_modified") if has_dates else ""
        version = digest([modified]) if modified and named else content
        found.append(FeedEntry(digest([named]) if named else content, version, item))
    own = _text_at(root, "feed_url")
    if not own and (home := _text_at(root, "home_page_url")):
        own = f"{home} {_text_at(root, 'title')}"
    name = entries or ITEMS
    return FeedDocument(JSON, own or source, name, tuple(found), root)


def only_items(feed: FeedDocument, chosen: Iterable[FeedEntry]) -> bytes:
    """Returns the document with only these entries, and the values of their feed in each."""
    items = [each.node for each in chosen]
    if feed.entries_name == ITEMS and _is_json_feed(feed.root):
        about = {name: each for name, each in feed.root.items() if isinstance(each, _PLAIN)}
        items = [
            {**each, "feed": about} if isinstance(each, dict) and "feed" not in each else each
            for each in items
        ]
    held: Any = items
    name = feed.entries_name or ITEMS
    for part in [] if name == WHOLE_DOCUMENT else reversed(name.split(".")):
        held = {part: held}
    return _encoded(held).encode()


def _array(root: Any, source: str, entries: str | None) -> list[Any]:
    if entries is None and not _is_json_feed(root):
        reason = "found JSON that is no JSON Feed; name the array of its entries (--entries)"
        raise InputError(source, reason)
    found = root
    name = entries or ITEMS
    for part in () if name == WHOLE_DOCUMENT else name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if not isinstance(found, list):
        raise ParseError(1, 1, f"no array at {name!r}", "the entries of the feed")
    return found


def _encoded(content: Any) -> str:
    """Returns JSON with sorted names, whose order is no content. Raises LimitError."""
    try:
        return json.dumps(content, sort_keys=True)
    except RecursionError:
        raise LimitError("OBJECT_DEPTH_MAX", OBJECT_DEPTH_MAX) from None


def _is_json_feed(root: Any) -> bool:
    return isinstance(root, Mapping) and _text_at(root, "version").startswith(_VERSION)


def _text_at(content: Any, path: str) -> str:
    """Returns the text, or the number as one, at a path of names; "" if there is none."""
    for name in path.split("."):
        content = content.get(name) if isinstance(content, Mapping) else None
    if isinstance(content, bool) or not isinstance(content, _PLAIN):
        return ""
    # An escape in JSON can denote a lone surrogate, which no bytes of a digest do.
    return str(content).encode(errors="backslashreplace").decode()
