"""What clients ask a broker for, told whole, in pages: so it can be matched elsewhere.

    page_from [0, 0]  ==>  durable subscriptions, by their numbers, each with its name
                           what else clients ask for, by the numbers of filters
    [first number of either that is not told yet]  ==>  the next page

Numbers are given in order, and never again while a broker runs; so a broker remembers nothing
between two pages. Promised: a durable subscription that stands, and a filter that a client asks
for, from the first request to the last answer, is told exactly once. One that comes or goes
meanwhile may be told, a filter that has gone and come back twice. Not told is what neighbours ask
for, and what patterns do.
"""

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Annotated, Final, Protocol, TypeAlias

import msgspec

from contrada.model import Filter
from contrada.net.wire.payload_codec import encode_content
from contrada.routing.router import Router
from contrada.routing.router_messages import Client, Party
from contrada.routing.tables.next_hop_cache import ITSELF

if TYPE_CHECKING:
    from contrada.delivery.owned_logs import Since

PAGE_FILTERS_MAX: Final = 256
"""Filters of a page of what a broker's clients ask for; a durable subscription stands on one page.
Beyond it: the next page takes the rest."""

PAGE_BYTES_MAX: Final = 64 * 1024
"""Bytes of names and filters after which such a page takes no more. Beyond it: the next page takes
the rest."""

PAGE_NUMBERS_MAX: Final = 16_384
"""Numbers, of which most may be free by now, that are looked at for such a page. Beyond it: the
next page goes on, and this one may be empty."""

_NotNegative: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

Position: TypeAlias = tuple[_NotNegative, _NotNegative]
"""Where a page begins: the number of its first durable subscription, and of its first other
filter."""

HeldFilters: TypeAlias = tuple[str, list[bytes]]
"""The name of a durable subscription and its filters; or no name, and filters that stand alone."""


class FilterPage(msgspec.Struct, frozen=True, array_like=True):
    """What clients ask for, and where the next page begins; None after the last one."""

    held: list[HeldFilters]
    following: Position | None = None


class OwnedDurables(Protocol):
    """The standing subscriptions at home at a broker."""

    client: Client

    def standing_since(self, number: int, count: int) -> "Since":
        """Those of so many numbers from one on; see `OwnedLogs.since`."""
        ...


class _PageDraft:
    """A page that is being filled."""

    def __init__(self) -> None:
        self.held: list[HeldFilters] = []
        self._filters = self._bytes = 0

    def add(self, name: str, filters: Iterable[Filter]) -> Generator[None]:
        """Packs filters, each in a turn of its own: it may cost as much as reading it did."""
        packed: list[bytes] = []
        for each in filters:
            packed.append(encode_content(each))
            yield
        if packed:
            self.held.append((name, packed))
        self._filters += len(packed)
        self._bytes += len(name) + sum(map(len, packed))

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return self._filters >= PAGE_FILTERS_MAX or self._bytes >= PAGE_BYTES_MAX


def filter_page(
    router: Router, logs: OwnedDurables, begin: Position
) -> Generator[None, None, FilterPage]:
    """A page, in turns: one for each filter. Nothing is changed by that.

    Cost: its filters, and the numbers that are looked at. Raises LimitError where a filter is
    larger than a frame holds.
    """
    draft = _PageDraft()
    first, second = begin
    numbers, standing = logs.standing_since(first, PAGE_NUMBERS_MAX)
    for number, each, is_durable in standing:
        yield from draft.add(each.name if is_durable else "", each.filters.filters)
        if draft.is_full:
            return FilterPage(draft.held, (number + 1, second))
    first = max(first, numbers.stop)
    if len(numbers) == PAGE_NUMBERS_MAX:
        return FilterPage(draft.held, (first, second))
    numbers, asked = router.subscriptions_since(second, PAGE_NUMBERS_MAX)
    for number, wanted, parties in asked:
        if _is_of_clients(parties, logs.client):
            yield from draft.add("", (wanted,))
        if draft.is_full:
            return FilterPage(draft.held, (first, number + 1))
    is_last = len(numbers) < PAGE_NUMBERS_MAX
    return FilterPage(draft.held, None if is_last else (first, numbers.stop))


def _is_of_clients(parties: Iterable[Party], keeper: Client) -> bool:
    """Whether one of these is a client, and not who keeps standing subscriptions or patterns."""
    return any(isinstance(each, Client) and each not in (ITSELF, keeper) for each in parties)
