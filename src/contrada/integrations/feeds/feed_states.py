"""`FeedStates`: the known entries of feeds, from one poll or run to the next.

Each known entry of a feed has two digests. Its *identity* stays the same when its content changes;
its *version* changes with the content. An entry that has left the feed is remembered while there is
room, so it is not new if it returns.
"""

import os
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from contrada.errors import InputError
from contrada.file_replacement import replace_file
from contrada.integrations.feeds.feed_document import FeedDocument
from contrada.integrations.feeds.feed_limits import FeedLimits

VERSION: Final = 1

_FileStamp: TypeAlias = tuple[int, int, int] | None


class EntryState(StrEnum):
    """The state of an entry, compared with the last poll."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


class Validators(msgspec.Struct, frozen=True, omit_defaults=True):
    """The headers of an HTTP response that make the next request conditional."""

    etag: str = ""
    last_modified: str = ""


NO_VALIDATORS: Final = Validators()


class SeenFeed(msgspec.Struct):
    """Versions of entries by identity, several if repeated; those of the last poll at the end.
    Omitted entries are known by their digests, so each is reported once.
    """

    entries: dict[str, list[str]] = {}

    def judge(self, feed: FeedDocument) -> list[EntryState]:
        """Returns the state of each entry. Of equal ones all but the first are unchanged."""
        found: list[EntryState] = []
        here: dict[str, set[str]] = {}
        for each in feed.entries:
            known = self.entries.get(each.identity)
            now = here.setdefault(each.identity, set())
            if each.version in now or (known is not None and each.version in known):
                found.append(EntryState.UNCHANGED)
            else:
                found.append(EntryState.NEW if known is None and not now else EntryState.CHANGED)
            now.add(each.version)
        return found

    def take(self, feed: FeedDocument, former_max: int) -> None:
        """Remembers the entries of a document, and so many former ones. Cost: all known ones."""
        here: dict[str, list[str]] = {}
        for each in feed.entries:
            versions = here.setdefault(each.identity, [])
            if each.version not in versions:
                versions.append(each.version)
        here.update((digest, []) for digest in feed.omitted)
        gone = {name: known for name, known in self.entries.items() if name not in here}
        for name in list(gone)[: max(len(gone) - former_max, 0)]:
            del gone[name]
        self.entries = gone | here


class AddressState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last response of an address: its feed, and the number of its entries."""

    feed: str
    entries: int
    validators: Validators = NO_VALIDATORS


_NO_RESPONSE: Final = AddressState("", 0)


class _HeldStates(msgspec.Struct):
    version: int = VERSION
    feeds: dict[str, SeenFeed] = {}
    addresses: dict[str, AddressState] = {}


class FeedStates:
    """The state of all feeds, optionally in a file.

    A new state is written to a second file, which then replaces the first, so the file is always
    complete. Only one run may use a file: a run writes nothing if another one has changed it.
    """

    def __init__(self, path: Path | None = None, *, limits: FeedLimits = FeedLimits()) -> None:
        """Raises InputError for a file with other content, or an unreadable one."""
        self._limits = limits
        self._path = path
        self._stamp = None if path is None else _stamp_at(path)
        self._held = _HeldStates() if path is None else _read(path, limits.state_bytes_max)

    def seen(self, identity: str) -> SeenFeed:
        """Returns the known entries of a feed."""
        return self._held.feeds.get(identity) or SeenFeed()

    def last(self, address: str) -> AddressState:
        """Returns the last response of an address; an empty one if there was none."""
        return self._held.addresses.get(address, _NO_RESPONSE)

    def take(self, address: str, feed: FeedDocument, validators: Validators) -> None:
        """Remembers the response of an address, and writes the file.

        Raises InputError if the file cannot be written, or another run has changed it.
        """
        seen = self.seen(feed.identity)
        seen.take(feed, self._limits.entries_known_max)
        state = AddressState(feed.identity, len(feed.entries), validators)
        count_max = self._limits.feeds_known_max
        _put(self._held.feeds, feed.identity, seen, count_max)
        _put(self._held.addresses, address, state, count_max)
        if self._path is not None:
            self._stamp = _write(self._path, msgspec.json.encode(self._held), self._stamp)


def _put(table: dict[str, Any], name: str, value: Any, count_max: int) -> None:
    table.pop(name, None)
    table[name] = value
    for oldest in list(table)[: max(len(table) - count_max, 0)]:
        del table[oldest]


def _read(path: Path, size_max: int) -> _HeldStates:
    try:
        with path.open("rb") as file:
            data = file.read(size_max + 1)
    except FileNotFoundError:
        return _HeldStates()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None
    if len(data) > size_max:
        raise InputError(str(path), f"larger than state_bytes_max = {size_max} allows")
    try:
        held = _decode(data)
    except msgspec.DecodeError as error:
        raise InputError(str(path), f"no file of states of feeds: {error}") from None
    if held.version != VERSION:
        raise InputError(str(path), f"states of version {held.version}, expected {VERSION}")
    return held


def _stamp_at(path: Path) -> _FileStamp:
    """Returns the stamp of a file, None if there is none."""
    try:
        return _stamp(path.stat())
    except OSError:  # Reading or writing it raises the reason.
        return None


def _stamp(status: os.stat_result) -> _FileStamp:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _write(path: Path, data: bytes, before: _FileStamp) -> _FileStamp:
    """Replaces an unchanged file; returns the stamp of the new one."""

    def check() -> None:
        if _stamp_at(path) != before:
            raise InputError(str(path), "another run has written it; one run at a time uses a file")

    try:
        return _stamp(replace_file(path, [data], check=check))
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror or error}") from None


_decode: Final = msgspec.json.Decoder(_HeldStates).decode
