"""`saved`: the savings of covering and merging for a set of subscriptions, at one server.

Its clients subscribe one after another, and it forwards the necessary filters to one neighbour. A
filter costs the neighbour memory, and a check for each notification; a message costs the link.
Deliveries are the same: only the messages differ.

Source: PODC 2000 §4 (a server forwards the most general filters); merging is this project's.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from contrada.lab.simulation.worlds import SAVINGS
from contrada.model import Filter, FilterSet
from contrada.routing.router import Router
from contrada.routing.router_messages import (
    Client,
    LinkUp,
    Neighbour,
    Received,
    Role,
    Send,
    Subscribe,
    Unsubscribe,
)

_NEXT: Final = Neighbour("next")


class Saved(msgspec.Struct, frozen=True):
    """The filters at the neighbour at the end, and the messages to it, without saving and with.

    Each is a triple: plain, covering, merging. `refused` subscriptions match nothing, or exceed a
    limit.
    """

    name: str
    subscriptions: int
    refused: int
    filters: tuple[int, ...]
    messages: tuple[int, ...]


def saved(
    name: str, subscriptions: Sequence[Filter | FilterSet], told: Callable[[], None] = lambda: None
) -> Saved:
    """Forwards subscriptions in order, plain, then with covering, then with merging.

    `told` is called for each of them, three times. Cost: all subscriptions at a router; rules with
    much text take some milliseconds each.
    """
    runs = [_forward(subscriptions, told, covering, merging) for covering, merging in SAVINGS]
    filters, messages, refused = zip(*runs, strict=True)
    return Saved(name, len(subscriptions), refused[0], filters, messages)


def _forward(
    subscriptions: Sequence[Filter | FilterSet],
    told: Callable[[], None],
    covering: bool,
    merging: bool,
) -> tuple[int, int, int]:
    """(filters at the neighbour, messages to it, subscriptions refused)."""
    router = Router(covering=covering, merging=merging)
    router.handle(LinkUp(_NEXT, Role.PEER), 0)
    begun = ended = refused = 0
    for number, each in enumerate(subscriptions):
        for effect in router.handle(Received(Client(f"party {number}"), Subscribe("it", each)), 0):
            match effect:
                case Send(_, Subscribe()):
                    begun += 1
                case Send(_, Unsubscribe()):
                    ended += 1
                case _:
                    refused += 1
        told()
    return begun - ended, begun + ended, refused
