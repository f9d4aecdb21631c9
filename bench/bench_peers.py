"""One publisher, one server, one subscriber, each a process of its own, and the same of others.

See `bench.wire_peers` for the load. All systems run in turn, several times; the peer is the best of
the others in each turn. How many go through in a second depends on how many processors are free;
the processor's time for each does so less, and is told too.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from bench.harness import Measurement, figure
from bench.wire_peers import PEERS, SYSTEMS, Run, run

TOTAL: Final = 200_000
PACED: Final = 3_000
ROUNDS: Final = 3
LOAD: Final = "200 bytes of 6 attributes, a content filter, 5,000 on their way at most"
BEST: Final = "the best of nats-server, mosquitto, redis and zenoh"
ONE: Final = "contrada"


@cache
def runs(name: str, role: str = "publish") -> list[Run]:
    """Runs of a system."""
    return [run(SYSTEMS[name], PACED if role == "pace" else TOTAL, role) for _ in range(ROUNDS)]


def peers() -> list[str]:
    """The other systems that are installed."""
    return [each.name for each in PEERS if each.is_installed()]


def beside_others(
    name: str, number: Callable[[Run], float], best: Callable[[Sequence[float]], float], role: str
) -> Measurement:
    """A number of Contrada, beside the best of the others."""
    own = [number(each) for each in runs(name, role)]
    others = [[number(each) for each in runs(peer, role)] for peer in peers()]
    if not others:
        return Measurement(own)
    return Measurement(own, BEST, [best(each) for each in zip(*others, strict=True)])


def rate_beside_one(name: str) -> Measurement:
    """How many a second, beside one broker with one subscription."""
    own, one = ([each.per_second for each in runs(each)] for each in (name, ONE))
    return Measurement(own, "one broker, one subscription", one)


@figure(name="peers/handler", unit="notifications/s", workload=f"{LOAD}; read by a handler")
def handler() -> Measurement:
    return beside_others(ONE, lambda each: each.per_second, max, "publish")


@figure(name="peers/loop", unit="notifications/s", workload=f"{LOAD}; read by `async for`")
def loop() -> Measurement:
    return beside_others("contrada, async for", lambda each: each.per_second, max, "publish")


@figure(name="peers/publisher", unit="us", workload=f"the processor's time, publisher: {LOAD}")
def publisher() -> Measurement:
    return beside_others(ONE, lambda each: each.publisher_s, min, "publish")


@figure(name="peers/server", unit="us", workload=f"the processor's time, server: {LOAD}")
def server() -> Measurement:
    return beside_others(ONE, lambda each: each.server_s, min, "publish")


@figure(name="peers/subscriber", unit="us", workload=f"the processor's time, subscriber: {LOAD}")
def subscriber() -> Measurement:
    return beside_others(ONE, lambda each: each.subscriber_s, min, "publish")


@figure(name="peers/delay", unit="us", workload="half arrive within, at 1,000 a second, one by one")
def delay() -> Measurement:
    return beside_others(ONE, lambda each: each.delay_s, min, "pace")


@figure(
    name="peers/among-1000", unit="notifications/s", workload=f"{LOAD}; 1,000 other subscriptions"
)
def among_thousand() -> Measurement:
    return rate_beside_one("contrada among 1,000")


@figure(
    name="peers/among-100000",
    unit="notifications/s",
    workload=f"{LOAD}; 100,000 other subscriptions",
)
def among_many() -> Measurement:
    return rate_beside_one("contrada among 100,000")


@figure(name="peers/line", unit="notifications/s", workload=f"{LOAD}; two brokers in line")
def line() -> Measurement:
    return rate_beside_one("contrada, two brokers")
