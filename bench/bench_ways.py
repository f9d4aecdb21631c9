"""The cost of publishing and reading.

`make bench-compare OLD=<git revision> ONLY=ways/` compares them with an earlier revision. All is
time of the processor or memory, as the processes themselves count it (see `bench.trips`): of a
broker, its publisher and its subscriber each alone. A sample is one run of all processes.
"""

from collections.abc import Callable
from typing import Final

from bench.harness import Figure, Measurement, figure
from bench.programs import RUNS, measured

KB: Final = 1e3
MB: Final = 1e6

EMBEDDED: Final = "embedded, mappings of 6 attributes to the one subscriber, who reads them"
BROKER: Final = "a broker with 10,000 filters of which one matches, batches of 100, 200 bytes each"
INSTALLING: Final = "5,000 subscriptions of one client at a broker, one after another"
TOGETHER: Final = "5,000 more, 100 at a time"
OPENING: Final = "100,000 subscriptions of the embedded service, one symbol each"
IMPORTING: Final = """
import time
begun = time.process_time()
import contrada
spent = time.process_time() - begun
import json
print(json.dumps({"import_s": spent}))
"""


def way(
    name: str, workload: str, unit: str, at_most: float | None = None
) -> Callable[[Callable[[], Measurement]], Figure]:
    """A figure of the ways."""
    return figure(name=f"ways/{name}", unit=unit, workload=workload, at_most=at_most)


def trip(kind: str, name: str, *, runs: int = RUNS, unit: float = 1.0) -> Measurement:
    """A number of a trip."""
    return measured(name, "-m", "bench.trips", *kind.split(), runs=runs, unit=unit)


@way("embedded-unmatched", "publish: embedded, the same mappings to a filter of none", "us", 4)
def embedded_unmatched() -> Measurement:
    return trip("embedded", "unmatched_s")


@way("embedded", f"publish: {EMBEDDED}", "us", 8)
def embedded() -> Measurement:
    return trip("embedded", "publish_s")


@way("embedded-batch", f"publish_batch of 100: {EMBEDDED}", "us", 3)
def embedded_batch() -> Measurement:
    return trip("embedded", "publish_batch_s")


@way("embedded-cold", f"the first thousand of a process, one by one: {EMBEDDED}", "us")
def embedded_cold() -> Measurement:
    return trip("embedded", "cold_s")


@way("broker", f"per notification: {BROKER}", "us", 6)
def broker() -> Measurement:
    return trip("tcp", "broker_s")


@way("broker-cold", f"the first thousand, loading of kernels aside: {BROKER}", "us")
def broker_cold() -> Measurement:
    return trip("tcp", "cold_s")


@way("publisher", f"per notification at its publisher: {BROKER}", "us", 5)
def publisher() -> Measurement:
    return trip("tcp", "publisher_s")


@way("subscriber", f"per notification at its subscriber, who reads it: {BROKER}", "us", 4)
def subscriber() -> Measurement:
    return trip("tcp", "subscriber_s")


@way("publisher-together", f"the same, published by `gather` of 100: {BROKER}", "us", 10)
def publisher_together() -> Measurement:
    return trip("tcp together", "publisher_s")


@way("publisher-singly", f"the same, each awaited before the next: {BROKER}", "us", 40)
def publisher_singly() -> Measurement:
    return trip("tcp singly", "publisher_s")


@way("broker-singly", f"the same at the broker, one notification in each frame: {BROKER}", "us", 60)
def broker_singly() -> Measurement:
    return trip("tcp singly", "broker_s")


@way("subscribing", f"per subscription at the client: {INSTALLING}", "us", 80)
def subscribing() -> Measurement:
    return trip("tcp", "subscribe_s")


@way("installing", f"per subscription at the broker: {INSTALLING}", "us", 80)
def installing() -> Measurement:
    return trip("tcp", "install_s")


@way("subscribing-together", f"per subscription at the client: {TOGETHER}", "us")
def subscribing_together() -> Measurement:
    return trip("tcp", "subscribe_together_s")


@way("installing-together", f"per subscription at the broker: {TOGETHER}", "us")
def installing_together() -> Measurement:
    return trip("tcp", "install_together_s")


@way("installed", "memory per subscription at a broker that holds 10,000", "KB", 1.5)
def installed() -> Measurement:
    return trip("tcp", "install_bytes", unit=KB)


@way("opening", OPENING, "s", 10)
def opening() -> Measurement:
    return trip("subscriptions", "open_s", runs=1)


@way("opened", f"memory: {OPENING}", "MB", 250)
def opened() -> Measurement:
    return trip("subscriptions", "bytes", runs=1, unit=MB)


@way("import", "import contrada, its bytecode cached", "ms", 120)
def importing() -> Measurement:
    return measured("import_s", "-c", IMPORTING, runs=9)
