"""`weave`: adds costs of links, and patterns, to a made script.

Half of the worlds with a mesh have links of different costs. In more than half of all worlds
clients subscribe to patterns, between the other steps. During a rest of such a world they subscribe
to some, too; when these have settled, clients publish within their advertisements, and then the
time advances. So some matches are required, besides those that are only permitted.

Some advertisements then have a value of their own, so that its notifications have few sources:
parts of one pattern have several sources, some consecutive parts the same.
"""

import random
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from contrada.lab.simulation import script_steps as steps
from contrada.lab.simulation.script_maker import REST_US, is_offered, random_filter, random_values
from contrada.model import Advertisement

WOVEN_COST_MAX: Final = 5
"""Cost of a link of a made world. Beyond it: no link of a made world costs more."""

AMID: Final = 0.06
"""The chance of a pattern step after a step."""

OWN: Final = range(20, 22)
"""Values that are advertised singly, and unknown to the maker."""

SETTLED_US: Final = 800_000
"""The part of a rest after which most networks have settled."""

TRIES: Final = 4
"""Notifications that are made to find an advertised one."""

TOLD_US: Final = 2_800_000
"""The part of a rest after which the time advances."""


def weave(script: steps.Script) -> steps.Script:
    """Returns a made script with these additions: a pure function."""
    chance = random.Random(f"{script.seed} {script.kind.name} woven")
    made = list(script.steps)
    if script.kind.shape in ("general", "hybrid") and chance.random() < 0.5:
        made = [
            replace(step, cost=chance.randint(1, WOVEN_COST_MAX))
            if isinstance(step, steps.Connect)
            else step
            for step in made
        ]
    if chance.random() < 0.6:
        made = list(_Weaver(chance, made).woven())
    return script.with_steps(made)


class _Weaver:
    """Adds patterns to steps, with a record of the clients' advertisements."""

    def __init__(self, chance: random.Random, made: list[steps.Step]) -> None:
        self._chance = chance
        self._steps = made
        self._clients = sorted({step.client for step in made if hasattr(step, "client")})
        self._offers: dict[tuple[str, str], Advertisement | None] = {}
        self._patterns: list[tuple[str, str]] = []
        self._numbered = 0

    def woven(self) -> Iterator[steps.Step]:
        """Returns the steps with the additions."""
        last_us = self._steps[-1].at_us
        ends = [*(step.at_us for step in self._steps[1:]), last_us + REST_US]
        for step, end_us in zip(self._steps, ends, strict=True):
            yield step
            self._learn(step)
            amid: Iterable[steps.Step] = ()
            if end_us - step.at_us >= REST_US:
                amid = self._rest(step.at_us)
            elif self._offers and self._chance.random() < AMID:
                amid = self._anything(step.at_us)
            for each in amid:
                self._learn(each)
                yield each

    def _learn(self, step: steps.Step) -> None:
        match step:
            case steps.AddOffer(_, client, identity, offer, is_open):
                self._offers[client, identity] = None if is_open else steps.advertisement_of(offer)
            case steps.DropOffer(_, client, identity):
                self._offers.pop((client, identity), None)
            case steps.Leave(_, client):
                self._offers = {key: it for key, it in self._offers.items() if key[0] != client}
                self._patterns = [key for key in self._patterns if key[0] != client]

    def _rest(self, begun_us: int) -> Iterator[steps.Step]:
        """Subscribes to patterns, withdraws some, and publishes after they have settled."""
        chance, now_us = self._chance, begun_us + SETTLED_US
        if not self._offers:
            return
        for _ in range(chance.randint(0, 2)):
            yield self._offer(now_us)
            yield self._subscribe(now_us)
        yield from self._anything(now_us)
        now_us += SETTLED_US
        pace_us = chance.choice((1, 1_000, 20_000, 100_000))
        for _ in range(chance.randint(6, 12)):
            now_us += chance.randrange(pace_us)
            yield self._publish(now_us)
        yield steps.AdvanceTime(begun_us + TOLD_US)

    def _anything(self, now_us: int) -> Iterator[steps.Step]:
        own = [key for key in self._offers if key[1].startswith("o")]
        draw = self._chance.random()
        if draw < 0.2:
            yield steps.AdvanceTime(now_us)
        elif draw < 0.4:
            yield self._offer(now_us)
        elif draw < 0.6 and own:
            yield steps.DropOffer(now_us, *self._chance.choice(own))
        elif draw < 0.8 and self._patterns:
            key = self._patterns.pop(self._chance.randrange(len(self._patterns)))
            yield steps.DropPattern(now_us, *key)
        else:
            yield self._subscribe(now_us)

    def _offer(self, now_us: int) -> steps.Step:
        self._numbered += 1
        client, value = self._chance.choice(self._clients), self._chance.choice(OWN)
        offer = f"a = {value} and b any and c any"
        return steps.AddOffer(now_us, client, f"o{self._numbered}", offer)

    def _subscribe(self, now_us: int) -> steps.Step:
        self._numbered += 1
        self._patterns.append((self._chance.choice(self._clients), f"p{self._numbered}"))
        return steps.AddPattern(now_us, *self._patterns[-1], random_pattern(self._chance))

    def _publish(self, now_us: int) -> steps.Step:
        """Returns a publication within its client's advertisements, if there are any."""
        self._numbered += 1
        tried = [random_values(self._chance) for _ in range(TRIES)]
        if self._chance.random() < 0.6:
            tried = [values | {"a": self._chance.choice(OWN)} for values in tried]
        able = [
            (client, values)
            for values in tried
            for (client, _), offer in self._offers.items()
            if offer is None or is_offered(offer, tuple(values.items()))
        ]
        client, values = self._chance.choice(able or [(self._clients[0], tried[0])])
        return steps.PublishStep(now_us, client, f"m{self._numbered}", values)


def random_pattern(chance: random.Random) -> str:
    """Returns patterns over the attributes of made filters."""
    size = chance.choice((2, 3, 3, 4))
    if chance.random() < 0.6:
        parts = [f"a = {chance.choice(OWN)}" for _ in range(size)]
    else:
        wide = "a any", "a < 8", "a > 4", "b any", "b prefix 'x'"
        parts = [chance.choice((*wide, random_filter(chance))) for _ in range(size)]
    by = chance.choice(("", "", "", " by b", " by @publisher"))
    within = chance.choice(("", "", " within 20 ms", " within 200 ms", " within 1 s"))
    every = chance.choice(("", "every "))
    text = every + " -> ".join(parts) + by + within
    assert not steps.pattern_of(text).is_empty
    return text
