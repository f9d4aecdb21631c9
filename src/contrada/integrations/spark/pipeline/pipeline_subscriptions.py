"""`load_origins`: the subscriptions of a pipeline, from files, other dialects and brokers; its
patterns.

A digest identifies the state of the origins, so that a stream parses them again only after a
change.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

import msgspec

from contrada.errors import ContradaError, InputError
from contrada.integrations.documents.name_patterns import by_names
from contrada.integrations.files import subscription_files
from contrada.integrations.files.record_matcher import RecordFilter
from contrada.model import Filter, FilterSet, Pattern, from_msgpack
from contrada.net.client.tcp_service import TcpService, read_subscriptions
from contrada.net.wire.inspection import HeldFilters
from contrada.service.settings import read_bytes, read_text

NamedFilters: TypeAlias = Mapping[str, RecordFilter]
"""Subscriptions by name."""


@dataclass(frozen=True, slots=True)
class SubscriptionsOrigin:
    """An origin of subscriptions: a file, of filters or of another dialect, or the subscriptions at
    a broker. `has_patterns`: names in a file of filters are patterns.
    """

    file: Path | None = None
    dialect: str | None = None
    broker: str | None = None
    has_patterns: bool = False

    def __str__(self) -> str:
        return str(self.file or self.broker)


@dataclass(frozen=True, slots=True)
class LoadedSubscriptions:
    """Subscriptions, refused rules, and the digest of their origins."""

    filters: NamedFilters
    refused: tuple[str, ...]
    digest: str


def load_origins(
    origins: Sequence[SubscriptionsOrigin], known: LoadedSubscriptions | None = None
) -> LoadedSubscriptions:
    """Returns the subscriptions of all origins; the object `known` itself if none has changed.
    Raises InputError for unreadable origins and duplicate names, and errors of brokers.
    """
    states = [
        digest_of(each) if each.broker is None else subscriptions_at(each.broker)
        for each in origins
    ]
    digest = blake2b(msgspec.msgpack.encode(states), digest_size=16).hexdigest()
    if known is not None and known.digest == digest:
        return known
    filters: dict[str, RecordFilter] = {}
    refused: list[str] = []
    for origin, state in zip(origins, states, strict=True):
        if origin.file is not None:
            found, others = _of_file(origin.file, origin.dialect)
            if origin.has_patterns:
                found = _with_name_patterns(origin.file, found)
            twice = found.keys() & filters.keys()
            refused += others
        else:
            assert not isinstance(state, str), "the state of a broker is its filters"
            found = _named_filters(str(origin), state)
            # Equal subscriptions of two brokers are one.
            twice = {each for each in found.keys() & filters.keys() if found[each] != filters[each]}
        for name in sorted(twice):
            raise InputError(str(origin), f"found the name {name!r} again, expected a new one")
        filters |= found
    return LoadedSubscriptions(filters, tuple(refused), digest)


def digest_of(origin: SubscriptionsOrigin) -> str:
    """Returns the digest of an origin's files, and of their names, which rules without a name have.
    Raises InputError.
    """
    assert origin.file is not None
    found = blake2b(digest_size=16)
    suffixes = subscription_files.DIALECTS[origin.dialect].suffixes if origin.dialect else ()
    for path in subscription_files.rule_files((origin.file,), suffixes):
        found.update(msgspec.msgpack.encode((os.fsencode(path.stem), read_bytes(path))))
    return found.hexdigest()


def subscriptions_at(address: str) -> list[HeldFilters]:
    """Returns the packed subscriptions of a broker's clients, sorted. Raises ServiceError."""

    async def ask() -> list[HeldFilters]:
        async with TcpService(address, reconnect=False) as service:
            return await read_subscriptions(service)

    # The last entry of a name holds: an earlier one has ended meanwhile.
    held = asyncio.run(ask())
    named = {name: filters for name, filters in held if name}
    others = {each: None for name, filters in held if not name for each in filters}
    return [*sorted(named.items()), *(("", [each]) for each in sorted(others))]


def _named_filters(address: str, held: list[HeldFilters]) -> NamedFilters:
    """Names durable subscriptions by name, other filters by text. Raises InputError."""
    found: dict[str, Filter | FilterSet] = {}
    for name, packed in held:
        filters = [_filter_of(address, each) for each in packed]
        filter_ = filters[0] if len(filters) == 1 else FilterSet(filters)
        key = name or str(filter_)
        if found.setdefault(key, filter_) != filter_:
            raise InputError(address, f"holds two subscriptions that are called {key[:60]!r}")
    return found


def _filter_of(address: str, packed: bytes) -> Filter:
    try:
        found = from_msgpack(packed)
    except ContradaError as error:
        raise InputError(address, f"holds a filter that is unknown here: {error}") from None
    if not isinstance(found, Filter):
        raise InputError(address, f"tells of a {type(found).__name__}, expected a filter")
    for operator in found.unknown():
        reason = f"holds a filter with the operator {operator!r}, which is not loaded here"
        raise InputError(address, reason)
    return found


def _of_file(path: Path, dialect: str | None) -> tuple[NamedFilters, list[str]]:
    if dialect is None:
        return subscription_files.load_subscriptions(path), []
    rules, refused = subscription_files.load_rules(path, dialect)
    if not rules:
        reason = f"found no rule of {dialect} that can be read"
        raise InputError(str(path), "; ".join([reason, *refused[:1]]))
    return rules, refused


def _with_name_patterns(path: Path, filters: NamedFilters) -> NamedFilters:
    found: dict[str, RecordFilter] = {}
    for name, filter_ in filters.items():
        try:
            found[name] = by_names(filter_, name)
        except ContradaError as error:
            raise InputError(str(path), f"{name}: {error}") from None
    return found


def read_patterns(path: Path) -> dict[str, Pattern]:
    """Reads lines of `name: pattern`. Raises InputError with the line."""
    found: dict[str, Pattern] = {}
    for number, line in subscription_files.named_lines(read_text(path)):
        name, colon, text = (each.strip() for each in line.partition(":"))
        if not name or not colon or name in found:
            reason = f"found {line.strip()[:60]!r}, expected `name: pattern`, each name once"
            raise InputError(str(path), reason, number, 1)
        try:
            found[name] = Pattern(text)
        except ContradaError as error:
            raise InputError(str(path), str(error), number) from None
    if not found:
        raise InputError(str(path), "found no pattern, expected lines of `name: pattern`")
    return found
