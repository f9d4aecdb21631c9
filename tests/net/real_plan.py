"""The plan of a real world, drawn by a seed: links, clients, their steps, and kills.

The filters, notifications and links are those of made worlds. A burst is faster than its
processing; after each the world rests.
"""

import random
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec

from contrada.delivery.retention import OnFull
from contrada.lab.simulation.script_maker import Links, links_of, random_filter, random_values
from contrada.lab.simulation.script_steps import (
    AddFilter,
    AttachReader,
    Crash,
    CutLine,
    DetachReader,
    DropFilter,
    Kind,
    MendLine,
    Move,
    OpenDurable,
    PublishStep,
    Restart,
)
from tests.net.crowd import Told

CROWDS: Final = 2
"""Processes of clients."""

KEPT: Final = 1_000_000
"""Records that a log keeps that is not to become full."""


UNREAD: Final = 0.4
"""The probability that a durable subscription has no reader at first."""


class Kill(msgspec.Struct, frozen=True, tag_field="step", tag="kill clients"):
    """A process of clients is killed, and another one takes its place."""

    crowd: int


Fault: TypeAlias = Crash | Restart | CutLine | MendLine | Kill
Act: TypeAlias = Told | Fault


class Plan(msgspec.Struct, frozen=True):
    """A world. Clients named `c…` are for best effort, `s…` stay at a broker, `r…` rove."""

    seed: int
    kind: Kind
    brokers: int
    links: Links
    bursts: list[list[Act]]

    def shown(self) -> str:
        """As lines of JSON."""
        lines = [f"seed {self.seed}, {self.kind.name}, links {self.links}"]
        for number, burst in enumerate(self.bursts):
            lines += [f"burst {number}", *(msgspec.json.encode(each).decode() for each in burst)]
        return "\n".join(lines)


def planned(
    seed: int, kind: Kind, brokers: int, bursts: int, *, each: int, cuts: bool = False
) -> Plan:
    """The plan of a seed, with so many bursts of `each` steps; `cuts`: links can be cut."""
    chance = random.Random(f"{seed} {kind.name}")
    links = links_of(kind.shape, brokers, chance)
    maker = _Maker(chance, brokers, links if cuts else [])
    return Plan(seed, kind, brokers, links, list(maker.bursts(bursts, each)))


class _Maker:
    def __init__(self, chance: random.Random, brokers: int, cut: Links) -> None:
        self._chance, self._brokers, self._cut = chance, brokers, cut
        self._numbered = 0
        few = max(2, brokers // 2)
        self._ordinary = [f"c{each}" for each in range(few)]
        self._promising = [f"{letter}{each}" for letter in "sr" for each in range(few // 2 or 1)]
        self._where: dict[str, int] = {}
        self._wishes: list[tuple[str, str]] = []
        self._stood: list[str] = []
        self._said = ""
        self._down: list[Fault] = []

    def bursts(self, count: int, each: int) -> Iterator[list[Act]]:
        clients = [*self._ordinary, *self._promising]
        yield [self._move(client) for client in clients]
        standing: list[Act] = []
        for client in 2 * self._promising:
            standing.append(self._stand(client))
            if self._chance.random() < UNREAD:
                standing.append(DetachReader(0, client, self._stood[-1]))
        yield standing + [self._wish() for _ in range(2 * len(self._ordinary))]
        for number in range(count):
            is_last = number == count - 1
            yield list(self._burst(each, is_last=is_last))
            if not self._down:  # The subscriptions of that time must be known still, or again.
                yield [self._stand(self._chance.choice(self._promising))]
                yield [act for _ in range(each // 4) for act in self._client_does()]

    def _burst(self, each: int, *, is_last: bool) -> Iterator[Act]:
        at = sorted(
            self._chance.randrange(each // 4, each) for _ in range(self._chance.choice((3, 4, 5)))
        )
        for number in range(each):
            for _ in range(at.count(number)):
                yield from self._fault()
            yield from self._client_does()
        if is_last or self._chance.random() < 0.7:
            while self._down:
                yield self._down.pop(0)

    # --- clients ------------------------------------------------------------------------------

    def _name(self, letter: str) -> str:
        self._numbered += 1
        return f"{letter}{self._numbered}"

    def _move(self, client: str) -> Move:
        self._numbered += 1
        self._where[client] = self._chance.randrange(self._brokers)
        return Move(self._numbered, client, self._where[client])

    def _wish(self) -> AddFilter:
        key = self._chance.choice(self._ordinary), self._name("w")
        self._wishes.append(key)
        return AddFilter(0, *key, random_filter(self._chance))

    def _stand(self, client: str) -> OpenDurable:
        name = self._name("d")
        self._stood.append(name)
        on_full = self._chance.choice((OnFull.REFUSE, OnFull.REFUSE, OnFull.DROP_OLDEST))
        is_small = self._chance.random() < 0.15
        # Retained records take room, too: a small log would be full for good.
        replays = 0 if is_small else self._chance.choice((0, KEPT))
        filters = " or ".join(random_filter(self._chance) for _ in range(2))
        return OpenDurable(
            0, client, name, filters, True, 20 if is_small else KEPT, on_full, replays
        )

    def _client_does(self) -> Iterator[Act]:
        draw = self._chance.random()
        values = random_values(self._chance)
        if draw < 0.3:
            client = self._chance.choice(self._ordinary)
            yield PublishStep(0, client, self._name("n"), values)
        elif draw < 0.85:
            client = self._said = self._chance.choice(self._promising)
            yield PublishStep(0, client, self._name("p"), values, delivery=self._delivery())
        elif draw < 0.89:
            yield self._wish()
        elif draw < 0.93 and self._wishes:
            wish = self._wishes.pop(self._chance.randrange(len(self._wishes)))
            yield DropFilter(0, *wish)
        elif draw < 0.98:
            kind: Any = self._chance.choice((AttachReader, AttachReader, DetachReader))
            yield kind(0, self._chance.choice(self._promising), self._chance.choice(self._stood))
        elif not self._down:
            yield self._move(self._chance.choice((*self._ordinary, *self._promising)))

    def _delivery(self) -> str:
        words = [self._chance.choice(("reliable", "certified", "certified"))]
        words += self._chance.choice(((), ("fifo",), ("causal",)))
        words += self._chance.choice(((), (), (), ("total:t",), ("total:u",)))
        return " ".join(words)

    # --- failures -----------------------------------------------------------------------------

    def _fault(self) -> Iterator[Act]:
        """Yields a fault, or its repair."""
        if self._down and self._chance.random() < 0.6:
            yield self._down.pop(self._chance.randrange(len(self._down)))
            return
        draw = self._chance.random()
        if draw < 0.2:
            yield Kill(self._chance.randrange(CROWDS))
        elif draw < 0.5 and self._cut:
            a, b, _ = self._chance.choice(self._cut)
            if MendLine(0, a, b) not in self._down:
                yield CutLine(0, a, b)
                self._down.append(MendLine(0, a, b))
        else:
            broker = self._chance.randrange(self._brokers)
            if self._said and self._chance.random() < 0.5:
                broker = self._where[self._said]
            if Restart(0, broker) not in self._down:
                yield Crash(0, broker, keeps_store=True)
                self._down.append(Restart(0, broker))
