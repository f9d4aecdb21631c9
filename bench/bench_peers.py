"""One publisher, one server, one subscriber, each a process of its own, and the same of peers.

See `bench.wire_load` for the load and `bench.wire_peers` for the systems. All systems run in turns,
several times; the peer of a figure is the best of the installed ones. A rate depends on how many
processors are free; the processor time of a notification does so less.
"""

from collections.abc import Callable
from functools import cache
from typing import Final

from bench.harness import Figure, Measurement, figure
from bench.wire_load import Run, System, run, run_alone
from bench.wire_peers import PEERS, SYSTEMS

TOTAL: Final = 200_000
PACED: Final = 3_000
ROUNDS: Final = 3
SUBSCRIPTIONS: Final = 10_000
CONFIRMED: Final = 2_000
CONFIRMED_TOGETHER: Final = 10_000
TOGETHER: Final = 100

LOAD: Final = "200 bytes of 6 attributes, a content filter, batches of 100, read by `async for`"
LOOP: Final = "contrada, async for"
ONE: Final = "contrada"
GATHER: Final = "contrada, gather"

Runs = dict[str, list[Run]]
Number = Callable[[Run], float]


def in_turns(names: tuple[str, ...], run_once: Callable[[System], Run]) -> Runs:
    """Runs all of these systems once in each round."""
    runs: Runs = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name in names:
            runs[name].append(run_once(SYSTEMS[name]))
    return runs


def installed(method: str) -> tuple[str, ...]:
    """Returns the names of the installed peers that have this part of the load."""
    return tuple(
        each.name
        for each in PEERS
        if each.is_installed() and getattr(type(each), method) is not getattr(System, method)
    )


@cache
def streamed() -> Runs:
    """Runs as fast as it goes."""
    names = (ONE, LOOP, GATHER, *installed("publish"))
    return in_turns(names, lambda system: run(system, TOTAL))


@cache
def paced() -> Runs:
    """Runs of single notifications at a pace."""
    names = (LOOP, *installed("publish"))
    return in_turns(names, lambda system: run(system, PACED, "pace"))


@cache
def confirmed(total: int, together: int) -> Runs:
    """Runs of publications that are confirmed once they are on the disk."""
    names = (ONE, *installed("confirmed"))
    return in_turns(names, lambda system: run_alone(system, total, "confirm", together))


@cache
def subscribed() -> Runs:
    """Runs of one client that puts many subscriptions in force."""
    names = (ONE, *installed("subscribe_many"))
    return in_turns(names, lambda system: run_alone(system, SUBSCRIPTIONS, "subscribe many", 1))


def beside(subject: Figure, runs: Runs, own: str, number: Number, *only: str) -> Measurement:
    """Returns a number of Contrada beside that of the peers, or of some peers only."""
    peers = {
        name: list(map(number, of_peer))
        for name, of_peer in runs.items()
        if name in (only or {peer.name for peer in PEERS})
    }
    samples = list(map(number, runs[own]))
    if not peers:
        return Measurement(samples)
    best, *others = subject.best(peers)
    return Measurement(samples, best, peers[best], {name: peers[name] for name in others})


def rate_beside_one(name: str) -> Measurement:
    """Returns the rate beside that of one broker with one subscription."""
    runs = in_turns((name, ONE), lambda system: run(system, TOTAL))
    own, one = ([each.per_second for each in runs[each]] for each in (name, ONE))
    return Measurement(own, "one broker, one subscription", one)


@figure(
    name="peers/sum",
    unit="us",
    workload=f"publisher, server and subscriber together: {LOAD}",
    at_most=12,
)
def total() -> Measurement:
    return beside(total, streamed(), LOOP, lambda each: each.sum_s)


@figure(name="peers/publisher", unit="us", workload=f"publisher: {LOAD}")
def publisher() -> Measurement:
    return beside(publisher, streamed(), LOOP, lambda each: each.publisher_s)


@figure(name="peers/server", unit="us", workload=f"server: {LOAD}")
def server() -> Measurement:
    return beside(server, streamed(), LOOP, lambda each: each.server_s)


@figure(name="peers/subscriber", unit="us", workload=f"subscriber: {LOAD}")
def subscriber() -> Measurement:
    return beside(subscriber, streamed(), LOOP, lambda each: each.subscriber_s)


@figure(
    name="peers/loop",
    unit="notifications/s",
    workload=f"{LOAD}; at most 5,000 in flight",
    counts="clock",
)
def loop() -> Measurement:
    return beside(loop, streamed(), LOOP, lambda each: each.per_second)


@figure(
    name="peers/loop-zenoh",
    unit="notifications/s",
    workload="the same beside the router of zenoh",
    ratio_at_least=1.0,
    counts="clock",
)
def loop_zenoh() -> Measurement:
    return beside(loop_zenoh, streamed(), LOOP, lambda each: each.per_second, "zenoh")


@figure(
    name="peers/loop-nats",
    unit="notifications/s",
    workload="the same beside nats-server",
    ratio_at_least=1.5,
    counts="clock",
)
def loop_nats() -> Measurement:
    return beside(loop_nats, streamed(), LOOP, lambda each: each.per_second, "nats")


@figure(
    name="peers/handler",
    unit="notifications/s",
    workload="the same read by a handler, as the peers' subscribers do",
    counts="clock",
)
def handler() -> Measurement:
    return beside(handler, streamed(), ONE, lambda each: each.per_second)


@figure(
    name="peers/gather",
    unit="us",
    workload="publisher, server and subscriber together: single publications, 100 in `gather`",
    at_most=20,
)
def gathered() -> Measurement:
    return beside(gathered, streamed(), GATHER, lambda each: each.sum_s)


@figure(
    name="peers/delay",
    unit="us",
    workload="median from publisher to subscriber, at 1,000 per second, one at a time",
    ratio_at_most=1.0,
    counts="clock",
)
def delay() -> Measurement:
    return beside(delay, paced(), LOOP, lambda each: each.delay_s)


@figure(
    name="peers/lone-server",
    unit="us",
    workload="server, for a notification of 1,000 per second, one at a time",
    at_most=60,
)
def lone_server() -> Measurement:
    return beside(lone_server, paced(), LOOP, lambda each: each.server_s)


@figure(
    name="peers/lone-sum", unit="us", workload="publisher, server and subscriber together: the same"
)
def lone_sum() -> Measurement:
    return beside(lone_sum, paced(), LOOP, lambda each: each.sum_s)


@figure(
    name="peers/certified-one",
    unit="notifications/s",
    workload="certified by one publisher, each synced to the disk before the next; redis: a stream "
    "with `appendfsync always`; nats: JetStream with `sync_interval: always`",
    at_least=4_000,
    counts="clock",
)
def certified_one() -> Measurement:
    return beside(certified_one, confirmed(CONFIRMED, 1), ONE, lambda each: each.per_second)


@figure(
    name="peers/certified-hundred",
    unit="notifications/s",
    workload="the same by 100 publishers of one client at a time",
    at_least=15_000,
    counts="clock",
)
def certified_hundred() -> Measurement:
    runs = confirmed(CONFIRMED_TOGETHER, TOGETHER)
    return beside(certified_hundred, runs, ONE, lambda each: each.per_second)


@figure(
    name="peers/certified-server",
    unit="us",
    workload="server, for one certified by 100 publishers at a time",
)
def certified_server() -> Measurement:
    runs = confirmed(CONFIRMED_TOGETHER, TOGETHER)
    return beside(certified_server, runs, ONE, lambda each: each.server_s)


@figure(
    name="peers/subscribing",
    unit="subscriptions/s",
    workload="10,000 of one symbol each, put in force by one client, 100 at a time",
    at_least=10_000,
    counts="clock",
)
def subscribing() -> Measurement:
    return beside(subscribing, subscribed(), ONE, lambda each: each.per_second)


@figure(name="peers/subscribing-server", unit="us", workload="server, for one of them")
def subscribing_server() -> Measurement:
    return beside(subscribing_server, subscribed(), ONE, lambda each: each.server_s)


@figure(
    name="peers/among-1000",
    unit="notifications/s",
    workload="read by a handler, among 1,000 other subscriptions",
    counts="clock",
)
def among_thousand() -> Measurement:
    return rate_beside_one("contrada among 1,000")


@figure(
    name="peers/among-100000",
    unit="notifications/s",
    workload="read by a handler, among 100,000 other subscriptions",
    counts="clock",
)
def among_many() -> Measurement:
    return rate_beside_one("contrada among 100,000")


@figure(
    name="peers/line",
    unit="notifications/s",
    workload="read by a handler, two brokers in line",
    counts="clock",
)
def line() -> Measurement:
    return rate_beside_one("contrada, two brokers")
