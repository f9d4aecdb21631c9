"""One publisher, one server, one subscriber, each a process of its own, and the same of peers.

See `bench.wire_load` for the load and `bench.wire_peers` for the systems. All systems run in turns,
several times; the peer of a figure is the best of the installed ones. A rate depends on how many
processors are free; the processor time of a notification does so less.
"""

from collections.abc import Callable
from functools import cache, partial
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
READERS: Final = 10
FANNED: Final = 20_000
STORED: Final = 50_000

LOAD: Final = "200 bytes of 6 attributes, a content filter, batches of 100, read by `async for`"
LOOP: Final = "contrada, async for"
ONE: Final = "contrada"
GATHER: Final = "contrada, gather"

Runs = dict[str, list[Run]]


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
    """Runs without pauses."""
    names = (ONE, LOOP, GATHER, *installed("publish"))
    return in_turns(names, lambda system: run(system, TOTAL))


@cache
def paced() -> Runs:
    """Runs of single notifications at a pace."""
    names = (LOOP, *installed("publish"))
    return in_turns(names, lambda system: run(system, PACED, "pace"))


@cache
def fanned_out() -> Runs:
    """Runs of several subscribers that get all notifications, each a process of its own."""
    names = (LOOP, *installed("publish"))
    return in_turns(names, lambda system: run(system, FANNED, readers=READERS))


@cache
def read_stored() -> Runs:
    """Runs of one reader of what is on the disk already."""
    names = (ONE, *installed("stored"))
    return in_turns(names, lambda system: run_alone(system, STORED, "read", 1))


@cache
def confirmed(total: int, together: int) -> Runs:
    """Runs of publications that are confirmed once they are on the disk."""
    names = (ONE, *installed("confirmed"))
    return in_turns(names, lambda system: run_alone(system, total, "confirm", together))


one_confirmed = partial(confirmed, CONFIRMED, 1)
hundred_confirmed = partial(confirmed, CONFIRMED_TOGETHER, TOGETHER)


@cache
def subscribed() -> Runs:
    """Runs of one client that puts many subscriptions in force."""
    names = (ONE, *installed("subscribe_many"))
    return in_turns(names, lambda system: run_alone(system, SUBSCRIPTIONS, "subscribe many", 1))


def of_peers(
    name: str,
    workload: str,
    runs: Callable[[], Runs],
    own: str,
    number: str,
    *only: str,
    unit: str = "",
    **limits: float,
) -> Figure:
    """Returns the figure of a number of `Run`, beside that of all peers, or of some."""
    is_rate = number == "per_second"

    @figure(
        name=f"peers/{name}",
        unit=unit or ("notifications/s" if is_rate else "us"),
        workload=workload,
        counts="clock" if is_rate or number == "delay_s" else None,
        **limits,
    )
    def measured() -> Measurement:
        samples = {
            each: [getattr(one, number) for one in some]
            for each, some in runs().items()
            if each in (own, *(only or (peer.name for peer in PEERS)))
        }
        return measured.beside(samples.pop(own), samples)

    return measured


def among_others(name: str, system: str, workload: str) -> Figure:
    """Returns the figure of a system's rate beside that of one broker with one subscription."""

    @figure(
        name=f"peers/{name}",
        unit="notifications/s",
        workload=f"read by a handler, {workload}",
        counts="clock",
    )
    def measured() -> Measurement:
        runs = in_turns((system, ONE), lambda each: run(each, TOTAL))
        own, one = ([each.per_second for each in some] for some in runs.values())
        return Measurement(own, "one broker, one subscription", one)

    return measured


ALL: Final = "publisher, server and subscriber together"

total = of_peers("sum", f"{ALL}: {LOAD}", streamed, LOOP, "sum_s", at_most=12)
publisher = of_peers("publisher", "the same, the publisher alone", streamed, LOOP, "publisher_s")
server = of_peers("server", "the same, the server alone", streamed, LOOP, "server_s")
subscriber = of_peers(
    "subscriber", "the same, the subscriber alone", streamed, LOOP, "subscriber_s"
)

loop = of_peers("loop", "the same; at most 5,000 in flight", streamed, LOOP, "per_second")
loop_zenoh = of_peers(
    "loop-zenoh",
    "the same beside the router of zenoh",
    *(streamed, LOOP, "per_second", "zenoh"),
    ratio_at_least=1.0,
)
loop_nats = of_peers(
    "loop-nats",
    "the same beside nats-server",
    *(streamed, LOOP, "per_second", "nats"),
    ratio_at_least=1.5,
)
handler = of_peers(
    "handler",
    "the same read by a handler, as the peers' subscribers do",
    *(streamed, ONE, "per_second"),
)
gathered = of_peers(
    "gather",
    f"{ALL}: single publications, 100 in `gather`",
    *(streamed, GATHER, "sum_s"),
    at_most=20,
)

fan_out = of_peers(
    "fan-out",
    f"{ALL}, for a delivery: the same to {READERS} subscribers, each a process of its own",
    *(fanned_out, LOOP, "sum_s"),
)
fan_out_server = of_peers(
    "fan-out-server", "server, for a delivery: the same", fanned_out, LOOP, "server_s"
)

delay = of_peers(
    "delay",
    "median from publisher to subscriber, at 1,000 per second, one at a time",
    *(paced, LOOP, "delay_s"),
    ratio_at_most=1.0,
)
lone_server = of_peers(
    "lone-server",
    "server, for a notification of 1,000 per second, one at a time",
    *(paced, LOOP, "server_s"),
    at_most=60,
)
lone_sum = of_peers("lone-sum", f"{ALL}: the same", paced, LOOP, "sum_s")

certified_one = of_peers(
    "certified-one",
    "certified by one publisher, each synced to the disk before the next; redis: a stream "
    "with `appendfsync always`; nats: JetStream with `sync_interval: always`",
    *(one_confirmed, ONE, "per_second"),
    at_least=4_000,
)
certified_hundred = of_peers(
    "certified-hundred",
    "the same by 100 publishers of one client at a time",
    *(hundred_confirmed, ONE, "per_second"),
    at_least=15_000,
)
certified_server = of_peers(
    "certified-server",
    "server, for one certified by 100 publishers at a time",
    *(hundred_confirmed, ONE, "server_s"),
)

durable_reading = of_peers(
    "durable-reading",
    f"{STORED:,} that are on the disk, read by one reader and acknowledged; Contrada: each before "
    "the next; redis and nats: in hundreds",
    *(read_stored, ONE, "per_second"),
)
durable_reading_server = of_peers(
    "durable-reading-server", "server, for one of them", read_stored, ONE, "server_s"
)

subscribing = of_peers(
    "subscribing",
    "10,000 of one symbol each, put in force by one client, 100 at a time",
    *(subscribed, ONE, "per_second"),
    unit="subscriptions/s",
    at_least=10_000,
)
subscribing_server = of_peers(
    "subscribing-server", "server, for one of them", subscribed, ONE, "server_s"
)

among_thousand = among_others(
    "among-1000", "contrada among 1,000", "among 1,000 other subscriptions"
)
among_many = among_others(
    "among-100000", "contrada among 100,000", "among 100,000 other subscriptions"
)
line = among_others("line", "contrada, two brokers", "two brokers in line")
