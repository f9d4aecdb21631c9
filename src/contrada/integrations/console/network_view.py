"""`NetworkQuestion`, `ForestQuestion`, `shown_network`, `types_in`: a network in the console."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from contrada.errors import ContradaError, InvalidValueError, LimitError
from contrada.integrations.console.pasted_records import read_records
from contrada.integrations.files.read_options import ReadOptions
from contrada.integrations.files.record import BadRecord
from contrada.model import Filter, FilterSet, parse
from contrada.model.algebra.relations import covers
from contrada.net.broker.inspector import FOREST_MAX
from contrada.net.client.network_inspection import NetworkInspection, NotificationHop, SeenBroker
from contrada.net.wire.inspection import ForestPosition, Inspection
from contrada.net.wire.payload_codec import encode_content
from contrada.service.clock import wall_clock_us
from contrada.service.envelope_factory import EnvelopeFactory

_TYPE: Final = re.compile(r"(?<![\w`])@is\.([\w.\-/:$#]+)|`@is\.((?:[^`]|``)+)`")


class NetworkQuestion(Struct, forbid_unknown_fields=True):
    """The text of a notification whose way is asked for, blank for none, and where it begins.

    Without `at` it begins at the broker of the console.
    """

    record: str = ""
    at: str = ""

    def packed(self, user: str) -> bytes:
        """Returns the notification as this user would publish it now; empty for none.

        Raises InputError, InvalidValueError.
        """
        if not self.record.strip():
            return b""
        found = list(islice(read_records(self.record, ReadOptions()), 2))
        if len(found) != 1:
            raise InvalidValueError("record", "expected one record")
        (record,) = found
        if isinstance(record, BadRecord):
            raise record.error()
        stamp = EnvelopeFactory()
        stamp.go_below(user)
        (notification,) = stamp.stamped([record.notification], wall_clock_us())
        return encode_content(notification)


class ForestQuestion(Struct, forbid_unknown_fields=True):
    """A part of the filters of a broker; see `ForestPosition`."""

    broker: str
    neighbour: str = ""
    owner: str = ""
    above: int = -1
    first: Annotated[int, Meta(ge=0)] = 0

    @property
    def position(self) -> ForestPosition:
        """The position in the forest."""
        return self.neighbour, self.owner, self.above, self.first


def shown_network(network: NetworkInspection, hops: Sequence[NotificationHop]) -> dict[str, Any]:
    """Returns what the page shows of a network and of the way of a notification."""
    return {
        "brokers": [_shown_broker(each) for each in network.brokers.values()],
        "left_out": network.left_out,
        "hops": [_shown_hop(each) for each in hops],
        "missed": network.missed(hops) if hops else {},
    }


def _shown_broker(seen: SeenBroker) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": seen.name, "address": seen.address, "reason": seen.reason}
    if seen.held is not None:
        held = seen.held
        shown |= {"counts": held.counts, "links": held.links, "clients": held.clients}
        shown |= {"strategy": held.strategy, "statistics": seen.statistics}
    return shown


def _shown_hop(hop: NotificationHop) -> dict[str, Any]:
    held = hop.held or Inspection("", {}, [], {}, [], [])
    return {
        "broker": hop.broker,
        "came_from": hop.came_from,
        "reason": hop.reason,
        "not_yours": held.not_yours,
        "matching": held.matching,
        "counts": held.counts,
        "steps": held.steps,
    }


def shown_forest(part: Inspection, question: ForestQuestion) -> Mapping[str, Any]:
    """Returns a part of a forest. Without a neighbour there is none: then `parents` has the places
    of covering filters within the part.
    """
    shown: dict[str, Any] = {"filters": part.filters, "following": part.following}
    if not question.neighbour:
        shown["parents"] = parents_of([each.text for each in part.filters])
    return shown


def types_in(texts: Iterable[str]) -> list[str]:
    """Returns the names of types in the texts of filters, for completion."""
    found = (
        plain or quoted.replace("``", "`")
        for text in texts
        for plain, quoted in _TYPE.findall(text)
    )
    return sorted({each for each in found if not each.startswith("by(")})


def parents_of(texts: Sequence[str]) -> list[int | None]:
    """Returns the index of the narrowest filter that covers each one, None for a root.

    Of equal filters the first is the parent. A cut text is a root, and so are those that are left
    when the work of a request is spent. Cost: each pair of filters.
    """
    parents: list[int | None] = [None] * len(texts)
    with suppress(LimitError):  # Costly filters are roots; the broker decides without this.
        _find_parents([_filter(text) for text in texts[:FOREST_MAX]], parents)
    return parents


def _find_parents(filters: Sequence[Filter | FilterSet | None], parents: list[int | None]) -> None:
    for child, narrow in enumerate(filters):
        if narrow is None:
            continue
        for place, wide in enumerate(filters):
            if wide is None or place == child or not covers(wide, narrow):
                continue
            if place > child and covers(narrow, wide):
                continue
            known = parents[child]
            nearest = None if known is None else filters[known]
            if nearest is None or (covers(nearest, wide) and not covers(wide, nearest)):
                parents[child] = place


def _filter(text: str) -> Filter | FilterSet | None:
    try:
        parsed = parse(text)
    except ContradaError:
        return None
    return parsed if isinstance(parsed, Filter | FilterSet) else None
