"""Random streams and patterns for the parts of the engine."""

import random
from collections.abc import Sequence

from contrada.model import Envelope, Filter, Notification, Pattern
from contrada.patterns.reorder_buffer import order_of

KINDS = "abc"


def pattern(chance: random.Random, *, parts: int = 0) -> Pattern:
    """A pattern of two to five filters, which overlap."""
    filters = []
    for _ in range(parts or chance.randint(2, 5)):
        kinds = chance.sample(KINDS, chance.choice((1, 1, 2)))
        filters.append(Filter("kind in (" + ", ".join(f"'{kind}'" for kind in kinds) + ")"))
    return Pattern(
        filters,
        by=chance.choice(((), ("host",))),
        within_us=chance.choice((None, 3, 8, 20)),
        every=chance.random() < 0.5,
    )


def stream(chance: random.Random, length: int) -> list[Notification]:
    """Notifications in order, some at equal times; some in two groups."""
    time_us, made = 0, []
    for sequence in range(length):
        time_us += chance.choice((0, 1, 1, 2))
        hosts = chance.choice((1, 2, [1, 2]))
        envelope = Envelope(publisher="p", sequence=sequence, time_us=time_us)
        attributes = {"kind": chance.choice(KINDS), "host": hosts}
        made.append(Notification(attributes, envelope=envelope))
    return made


def places_of(pattern: Pattern, notification: Notification) -> list[int]:
    """The places with a matching filter, the highest first."""
    found = [place for place, part in enumerate(pattern.filters) if part.matches(notification)]
    return found[::-1]


def text_of(match: Sequence[Notification]) -> tuple[int, ...]:
    """A match as the numbers of its notifications."""
    return tuple(order_of(each)[2] for each in match)
