"""`Story`: the history of one notification, subscription or log through brokers.

Each broker numbers its events; `in_causal_order` merges them. An arrival follows the forwarding
that it is paired with, in the order of their link. Times only order transitions without such a
relation, since clocks differ.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from contrada.model.domains.values import datetime_of


class StoryStep(StrEnum):
    """The kinds of transitions."""

    PUBLISHED = "published"
    ARRIVED = "arrived"
    REFUSED = "refused"
    DUPLICATE = "duplicate"
    EXPIRED = "expired"
    UNMATCHED = "matches nothing"
    QUEUED = "queued"
    FORWARDED = "forwarded"
    MATCHED = "in a match"
    DROPPED = "dropped"
    ACCEPTED = "accepted"
    LOGGED = "logged"
    DEAD = "dead letter"
    HANDED = "handed out"
    ACKNOWLEDGED = "acknowledged"
    RETURNED = "returned"
    TAKEN_BACK = "taken back"
    SUBSCRIBED = "subscribed"
    COVERED = "covered"
    WITHDRAWN = "withdrawn"
    OPENED = "opened"
    CREDIT = "credit"
    CLOSED = "closed"
    NOTED = "noted"


class Transition(msgspec.Struct, frozen=True):
    """A transition at a broker, which numbers its events; `step` is one of `StoryStep`.

    It came from the client or broker `origin`, and concerns the client, broker or log `to`, which
    knows a forwarded filter by the identity `name`. `time_us` is that of the broker's clock.
    """

    broker: str
    number: int
    time_us: int
    step: str
    origin: str = ""
    to: str = ""
    name: str = ""
    detail: str = ""

    def __str__(self) -> str:
        origin = f" from {self.origin}" if self.origin else ""
        to = f" to {self.to}" if self.to else ""
        name = f" as {self.name}" if self.name else ""
        detail = f": {self.detail}" if self.detail else ""
        time = f"{datetime_of(self.time_us):%Y-%m-%dT%H:%M:%S.%fZ}"
        return f"{time}  {self.broker}  {self.step}{origin}{to}{name}{detail}"


class ServerStory(msgspec.Struct, frozen=True):
    """The transitions at one server; `since_us` is the oldest time that it remembers, 0 where it
    has overwritten nothing. `is_recorded`: the server records transitions. `left_out` counts those
    beyond a limit.
    """

    transitions: list[Transition] = []
    since_us: int = 0
    is_recorded: bool = True
    left_out: int = 0


class Story(msgspec.Struct, frozen=True):
    """The story of an identity, with what is missing of it.

    `missing` names the brokers that gave no transitions, each with the reason; `since_us` those
    that have overwritten transitions, with the oldest time that they remember; `left_out` those
    with more transitions than they tell, with their number.
    """

    identity: str
    transitions: list[Transition]
    missing: dict[str, str] = {}
    since_us: dict[str, int] = {}
    left_out: dict[str, int] = {}

    def notes(self) -> list[str]:
        """Returns a line for each part that is missing."""
        lines = [f"{name or 'the broker'}: {reason}" for name, reason in self.missing.items()]
        for name, since_us in self.since_us.items():
            since = f"{datetime_of(since_us):%Y-%m-%dT%H:%M:%SZ}"
            lines.append(f"{name or 'the broker'}: overwritten before {since}")
        for name, count in self.left_out.items():
            lines.append(f"{name or 'the broker'}: {count:,} more transitions")
        return lines

    def __str__(self) -> str:
        lines = [*map(str, self.transitions)] or [f"nothing is remembered of {self.identity!r}"]
        return "\n".join([*lines, *self.notes()])


def story_of(identity: str, found: Mapping[str, ServerStory], missing: Mapping[str, str]) -> Story:
    """Returns the story of the servers that answered, by name, and of those that did not."""
    silent = {
        name: "it remembers no events: give [limits.service] of its settings a transitions_max"
        for name, each in found.items()
        if not each.is_recorded
    }
    ordered = in_causal_order({name: each.transitions for name, each in found.items()})
    for each in ordered:
        # Its step may be one that this version does not know.
        other = {StoryStep.FORWARDED.value: each.to, StoryStep.ARRIVED.value: each.origin}.get(
            each.step
        )
        if other and other not in found and other not in missing:
            silent[other] = "not asked: no known link leads there now"
    return Story(
        identity,
        ordered,
        silent | dict(missing),
        {name: each.since_us for name, each in found.items() if each.since_us},
        {name: each.left_out for name, each in found.items() if each.left_out},
    )


def in_causal_order(found: Mapping[str, Sequence[Transition]]) -> list[Transition]:
    """Returns the transitions of several brokers as one order that keeps that of each broker.

    The n-th arrival over a link follows the n-th forwarding there. Cost: brokers for each.
    """
    waiting = {name: deque(each) for name, each in found.items() if each}
    forwarded: dict[tuple[str, str, str], int] = defaultdict(int)
    left: dict[tuple[str, str, str], int] = defaultdict(int)
    for each in found.values():
        for it in each:
            if it.step == StoryStep.FORWARDED:
                left[it.broker, it.to, it.name] += 1
    ordered: list[Transition] = []
    while waiting:
        ready = [queue for queue in waiting.values() if _is_due(queue[0], forwarded, left)]
        # Without one, clocks decide: some broker has overwritten what the others waited for.
        queue = min(ready or waiting.values(), key=lambda it: it[0].time_us)
        first = queue.popleft()
        link = first.broker, first.to, first.name
        if first.step == StoryStep.FORWARDED:
            forwarded[link] += 1
            left[link] -= 1
        elif first.step == StoryStep.ARRIVED:
            forwarded[first.origin, first.broker, first.name] -= 1
        ordered.append(first)
        if not queue:
            del waiting[first.broker]
    return ordered


def _is_due(
    first: Transition,
    forwarded: Mapping[tuple[str, str, str], int],
    left: Mapping[tuple[str, str, str], int],
) -> bool:
    """Whether a transition waits for no forwarding that is still to be ordered."""
    link = first.origin, first.broker, first.name
    is_arrival = first.step == StoryStep.ARRIVED
    return not is_arrival or forwarded.get(link, 0) > 0 or not left.get(link, 0)
