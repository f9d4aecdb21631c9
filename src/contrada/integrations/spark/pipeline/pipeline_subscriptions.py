"""`asked_by`: the subscriptions of a pipeline, from files, other dialects and brokers; its
patterns.

A digest identifies the state of the origins, so that a stream parses them again only after a
change.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

import msgspec

from contrada.errors import ContradaError, InputError
from contrada.integrations.documents.name_patterns import by_names
from contrada.integrations.files.record_matcher import RecordFilter
from contrada.integrations.files.rule_files import DIALECTS, load_rules, rule_files
from contrada.integrations.files.subscription_files import load_subscriptions
from contrada.model import Filter, FilterSet, Pattern, from_msgpack
from contrada.net.client.subscription_export import read_subscriptions
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.inspection import HeldFilters
from contrada.service.settings import read_text

Wishes: TypeAlias = Mapping[str, RecordFilter]
"""Subscriptions by name."""


@dataclass(frozen=True, slots=True)
class SubscriptionsOrigin:
    """An origin of subscriptions: a file, of filters or of another dialect, or the subscriptions at
    a broker.

    `has_patterns`: names in a file of filters are patterns.
    """

    file: Path | None = None
    dialect: str | None = None
    broker: str | None = None
    has_patterns: bool = False

    def __str__(self) -> str:
        return str(self.file or self.broker)


@dataclass(frozen=True, slots=True)
class AskedFor:
    """Subscriptions, refused rules, and the digest of their origins."""

    wishes: Wishes
    refused: tuple[str, ...]
    digest: str


def asked_by(origins: Sequence[SubscriptionsOrigin], known: AskedFor | None = None) -> AskedFor:
    """Returns the subscriptions of all origins; the object `known` itself if none has changed.

    Raises InputError with the place for unreadable origins and duplicate names;
    ConnectionFailedError, ServiceError.
    """
    states = [_state_of(each) for each in origins]
    digest = blake2b(msgspec.msgpack.encode(states), digest_size=16).hexdigest()
    if known is not None and known.digest == digest:
        return known
    wishes: dict[str, RecordFilter] = {}
    refused: list[str] = []
    for origin, state in zip(origins, states, strict=True):
        if origin.file is not None:
            found, others = _of_file(origin.file, origin.dialect)
            if origin.has_patterns:
                found = _by_names(origin.file, found)
            twice = found.keys() & wishes.keys()
            refused += others
        else:
            assert not isinstance(state, str), "a broker tells what it holds"
            found = _wishes_of(str(origin), state)
            # The same of two brokers is one subscription.
            twice = {each for each in found.keys() & wishes.keys() if found[each] != wishes[each]}
        for name in sorted(twice):
            raise InputError(str(origin), f"found the name {name!r} again, expected a new one")
        wishes |= found
    return AskedFor(wishes, tuple(refused), digest)


def _state_of(origin: SubscriptionsOrigin) -> str | list[HeldFilters]:
    """Returns the state of an origin: of a broker, all its subscriptions."""
    return digest_of(origin) if origin.broker is None else held_by(origin.broker)


def digest_of(origin: SubscriptionsOrigin) -> str:
    """Returns the digest of an origin's files. Raises InputError."""
    assert origin.file is not None
    found = blake2b(digest_size=16)
    suffixes = DIALECTS[origin.dialect].suffixes if origin.dialect else ()
    for path in rule_files((origin.file,), suffixes):
        try:
            found.update(path.read_bytes())
        except OSError as error:
            raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None
    return found.hexdigest()


def held_by(address: str) -> list[HeldFilters]:
    """Returns the packed subscriptions of a broker's clients, sorted.

    Raises ServiceError if the broker refuses; ConnectionFailedError.
    """

    async def ask() -> list[HeldFilters]:
        async with TcpService(address, reconnect=False) as service:
            return await read_subscriptions(service)

    # Of a name that is told twice the last holds: the one before has ended meanwhile.
    held = asyncio.run(ask())
    named = {name: filters for name, filters in held if name}
    others = {each: None for name, filters in held if not name for each in filters}
    return [*sorted(named.items()), *(("", [each]) for each in sorted(others))]


def _wishes_of(address: str, held: list[HeldFilters]) -> Wishes:
    """Names durable subscriptions by their names, other filters by their texts. Raises
    InputError.
    """
    found: dict[str, Filter | FilterSet] = {}
    for name, packed in held:
        filters = [_filter_of(address, each) for each in packed]
        wish = filters[0] if len(filters) == 1 else FilterSet(filters)
        key = name or str(wish)
        if found.setdefault(key, wish) != wish:
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


def _of_file(path: Path, dialect: str | None) -> tuple[Wishes, list[str]]:
    if dialect is None:
        return load_subscriptions(path), []
    rules, refused = load_rules(path, dialect)
    if not rules:
        reason = f"found no rule of {dialect} that can be read"
        raise InputError(str(path), "; ".join([reason, *refused[:1]]))
    return rules, refused


def _by_names(path: Path, wishes: Wishes) -> Wishes:
    """Returns filters whose names are patterns. Raises InputError for a malformed one."""
    found: dict[str, RecordFilter] = {}
    for name, wish in wishes.items():
        try:
            found[name] = by_names(wish, name)
        except ContradaError as error:
            raise InputError(str(path), f"{name}: {error}") from None
    return found


def patterns_in(path: Path) -> dict[str, Pattern]:
    """Reads the patterns of a file, one `name: pattern` per line. Raises InputError with the
    line.
    """
    found: dict[str, Pattern] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
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
