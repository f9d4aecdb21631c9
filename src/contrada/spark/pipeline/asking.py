"""What a pipeline asks for: subscriptions of files, of other dialects and of brokers; patterns.

What can change while a stream runs is told apart by a digest, so that it is read again only where
it has changed.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

from contrada.errors import ContradaError, InputError, shortened
from contrada.model import Filter, FilterSet, Pattern, parse
from contrada.net.client import TcpService
from contrada.net.inspection import Inspection
from contrada.records.matcher import Wish
from contrada.records.rule_files import DIALECTS, load_rules, rule_files
from contrada.records.subscriptions import load_subscriptions, read_text

Wishes: TypeAlias = Mapping[str, Wish]
"""What subscriptions ask for, by name."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where subscriptions come from: a file, maybe of another dialect, or what a broker holds."""

    file: Path | None = None
    dialect: str | None = None
    broker: str | None = None

    def __str__(self) -> str:
        return str(self.file or self.broker)


@dataclass(frozen=True, slots=True)
class AskedFor:
    """What origins ask for, the rules that are refused, and a digest of what was read."""

    wishes: Wishes
    refused: tuple[str, ...]
    digest: str


def asked_by(origins: Iterable[Origin]) -> AskedFor:
    """What origins ask for now.

    Raises InputError with the place for what cannot be read, a name that stands twice, and a broker
    that holds more than it tells; ConnectionFailedError.
    """
    wishes: dict[str, Wish] = {}
    refused: list[str] = []
    digest = blake2b(digest_size=16)
    for origin in origins:
        if origin.broker is not None:
            texts = held_by(origin.broker)
            digest.update("\n".join(sorted(texts)).encode())
            # The same filter of two brokers is one subscription.
            wishes |= {text: _filter_of(origin.broker, text) for text in texts}
            continue
        assert origin.file is not None
        digest.update(digest_of(origin).encode())
        found, others = _of_file(origin.file, origin.dialect)
        for name in found.keys() & wishes.keys():
            raise InputError(str(origin), f"found the name {name!r} again, expected a new one")
        wishes |= found
        refused += others
    return AskedFor(wishes, tuple(refused), digest.hexdigest())


def digest_of(origin: Origin) -> str:
    """What tells one state of an origin's files from another. Raises InputError."""
    assert origin.file is not None
    found = blake2b(digest_size=16)
    suffixes = DIALECTS[origin.dialect].suffixes if origin.dialect else ()
    for path in rule_files((origin.file,), suffixes):
        try:
            found.update(path.read_bytes())
        except OSError as error:
            raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None
    return found.hexdigest()


def held_by(address: str) -> list[str]:
    """The filters that a broker holds, as texts.

    Raises InputError where they are more, or longer, than it tells; ConnectionFailedError.
    """

    async def ask() -> Inspection:
        async with TcpService(address, reconnect=False) as service:
            return await service.inspection()

    held = asyncio.run(ask())
    count = held.counts["filters"]
    if count > len(held.filters):
        reason = (
            f"holds {count} filters, of which it tells {len(held.filters)}: name them in a file"
        )
        raise InputError(address, reason)
    return [each.text for each in held.filters]


def _filter_of(address: str, text: str) -> Filter | FilterSet:
    if text != shortened(text.removesuffix("…")):
        raise InputError(address, f"tells only the beginning of a filter: {text[:60]!r}")
    try:
        found = parse(text)
    except ContradaError as error:
        raise InputError(address, f"holds a filter that is unknown here: {error}") from None
    assert isinstance(found, Filter | FilterSet)
    return found


def _of_file(path: Path, dialect: str | None) -> tuple[Wishes, list[str]]:
    if dialect is None:
        return load_subscriptions(path), []
    rules, refused = load_rules(path, dialect)
    if not rules:
        reason = f"found no rule of {dialect} that can be read"
        raise InputError(str(path), "; ".join([reason, *refused[:1]]))
    return rules, refused


def patterns_in(path: Path) -> dict[str, Pattern]:
    """The patterns of a file, one `name: pattern` per line. Raises InputError with the line."""
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
