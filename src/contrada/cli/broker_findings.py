"""`check_broker` and `check_network`: faults of brokers and of their links, with remedies."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import structs

from contrada.cli.client_command import Approach, connect, run
from contrada.cli.stats import answered
from contrada.errors import (
    ConnectionFailedError,
    ContradaError,
    NotPermittedError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
)
from contrada.net.broker.link import ON_ITS_WAY
from contrada.net.client.client_limits import NetworkLimits
from contrada.net.client.network_inspection import NetworkInspection, SeenBroker
from contrada.net.client.tcp_service import reach_with
from contrada.net.wire.address import is_loopback
from contrada.net.wire.frames import VERSION
from contrada.net.wire.tls import TLS_FAULT
from contrada.routing.assembly.held_patterns import AHEAD
from contrada.service.clock import wall_clock_us
from contrada.service.dispatch_routes import LINK_DOWN, LINK_FULL
from contrada.service.dispatcher import DUPLICATE, EXPIRED_ON_ARRIVAL
from contrada.service.security.principals import NOT_PERMITTED
from contrada.service.stores.table_store import NO_ROOM
from contrada.service.subscription_queue import EXPIRED, QUEUE_FULL

FindingLevel: TypeAlias = Literal["ok", "warning", "fault"]

SLOW_S: Final = 0.5
"""Seconds for a broker's hello and its answer. Beyond it: a warning."""

CLOCK_S_MAX: Final = 2.0
"""Seconds between a broker's clock and that of this machine. Beyond it: a fault."""

DISK_FREE_MIN: Final = 256 * 2**20
"""Bytes free on the disk of a broker's store. Below it: a warning."""

_HARMLESS: Final = {"connection ended", "unsubscribed", EXPIRED, DUPLICATE}
"""Reasons of drops without a loss for any subscriber."""

_DROPPED: Final = {
    QUEUE_FULL: "slow subscribers, which contrada top shows: make them read faster, or "
    "subscribe to less",
    LINK_FULL: "a slow neighbour; contrada top shows the link with a long queue",
    LINK_DOWN: "a link broke with a queue; see the log of serve -v",
    EXPIRED_ON_ARRIVAL: "the clock of a publisher or of this broker is wrong: synchronize them; "
    "or times to live are shorter than the way to this broker",
    AHEAD: "patterns ignored these: the clock of a publisher or of this broker is wrong: "
    "synchronize them",
    NOT_PERMITTED: "a user published or subscribed without permission; see the log of serve -v",
    ON_ITS_WAY: "a link broke; notifications in flight may be lost; see the log of serve -v",
}
"""Remedies for dropped notifications, by reason."""

_COUNTED: Final = {
    "refused": "peers or requests did not fit; the log of serve -v has each, with the reason",
    "safe_answers": "something was too much work to decide, or an operator is unknown there, so "
    "more was sent than needed, and nothing lost: simpler filters, or --extension at that broker",
    "operator_failures": "an operator of an extension raised: see the log, and mend the extension",
}
"""Remedies for other counters of a broker."""

_REFUSED: Final = dict.fromkeys(
    (each.__name__ for each in (StoreError, StoreDamagedError, StoreFullError)),
    "its store did not take them; the clients got the error",
)
"""Remedies for refusals that are no fault of peers, by reason."""

_STORE_FAULTS: Final = "store faults"

_DELIVERY: Final = {
    _STORE_FAULTS: "its store is damaged: contrada store check, then restore a backup",
    "damaged": "records that readers did not get: contrada store check shows the store's faults",
    "lost": "shipments for a server that lost its memory, or damaged ones: contrada help delivery",
}
"""Remedies for faults of durable delivery."""


class Finding(msgspec.Struct, frozen=True):
    """The result of one check: its level and, after a fault, the remedy."""

    level: FindingLevel
    what: str
    found: str
    todo: str = ""


def check_broker(address: str, approach: Approach) -> Iterator[Finding]:
    """Connects to a broker, and yields what it finds."""
    try:
        hello_s, answer_s, ahead_s, counts = run(_asked(address, approach))
    except ContradaError as error:
        found = str(error).removeprefix(f"{address}: ")
        yield Finding("fault", address, found, _way_in(error))
        return
    found = (
        f"speaks protocol {VERSION}; hello after {hello_s * 1e3:.0f} ms, "
        f"an answer after {answer_s * 1e3:.0f} ms"
    )
    if max(hello_s, answer_s) > SLOW_S:
        yield Finding("warning", address, found, "it, or the way to it, is busy: contrada top")
    else:
        yield Finding("ok", address, found)
    if isinstance(counts, NotPermittedError):
        why = str(counts).removeprefix(f"{address} refused: ")
        todo = "connect as a user with the permission: contrada user add NAME --inspect"
        yield Finding("warning", address, f"its counters are not shown: {why}", todo)
        return
    yield from _clock(address, ahead_s, answer_s / 2)
    yield from _store(address, counts)
    lost = dict(counts.get("dropped", {}))
    for reason, count in lost.items():
        if count and reason not in _HARMLESS:
            todo = _DROPPED.get(reason, "a limit of the broker: contrada help limits")
            yield Finding("warning", address, f"{count:,} dropped: {reason}", todo)
    if not any(count for reason, count in lost.items() if reason not in _HARMLESS):
        yield Finding("ok", address, "no drops with a loss")
    for name, todo in _DELIVERY.items():
        if count := counts.get("delivery", {}).get(name, 0):
            yield Finding("fault", address, f"durable delivery: {count:,} {name}", todo)
    for name, count in counts.get("queue_unread", {}).items():
        if count and not counts["queue_readers"].get(name):
            todo = "start its reader, or end it: contrada sub --durable NAME --end"
            yield Finding("warning", address, f"{count:,} unread without a reader: {name}", todo)
    for name, count in counts.get("queue_dead", {}).items():
        if count:
            todo = "readers failed on these: read its dead letters, and mend the reader"
            yield Finding("warning", address, f"{count:,} dead: {name}", todo)
    for name, todo in _COUNTED.items():
        for reason, count in counts.get(name, {}).items():
            found = f"{count:,} {name.replace('_', ' ')}: {reason}"
            yield Finding("warning", address, found, _REFUSED.get(reason, todo))


def _clock(address: str, ahead_s: float, doubt_s: float) -> Iterator[Finding]:
    if abs(ahead_s) > CLOCK_S_MAX + doubt_s:
        side = "ahead of" if ahead_s > 0 else "behind"
        found = f"its clock is {abs(ahead_s):,.1f} s {side} that of this machine"
        todo = "synchronize both (NTP): times to live, patterns and from_time use these clocks"
        yield Finding("fault", address, found, todo)


def _store(address: str, counts: Mapping[str, Any]) -> Iterator[Finding]:
    room = "make room on the disk of its store; writes continue by themselves, and nothing is lost"
    is_damaged = counts.get("delivery", {}).get(_STORE_FAULTS)
    for reason, count in counts.get("store_failures", {}).items():
        found = f"its store cannot be written, tried {count:,} times: {reason}"
        mend = _DELIVERY[_STORE_FAULTS] if is_damaged else "mend that; it is tried again by itself"
        todo = room if NO_ROOM in reason else mend
        yield Finding("fault", address, found, todo)
    for reason in counts.get("stuck_logs", {}):
        todo = (
            "it is read again by itself, once the store answers; if the store is damaged, "
            "contrada store check names where: restore a backup, or unsubscribe it"
        )
        found = f"a log cannot be read, and its readers wait: {reason}"
        yield Finding("fault", address, found, todo)
    free = counts.get("store", {}).get("disk free bytes", DISK_FREE_MIN)
    if free < DISK_FREE_MIN:
        level: FindingLevel = "warning" if free else "fault"
        yield Finding(level, address, f"the disk of its store has {free:,} bytes free", room)


def _way_in(error: ContradaError) -> str:
    """Returns a remedy for a failed connection."""
    fault = error.fault if isinstance(error, ConnectionFailedError) else ""
    if fault == NOT_PERMITTED:
        return (
            "identify yourself: --token-file, or --tls-certificate; contrada user add makes users"
        )
    if fault == TLS_FAULT:
        return (
            "check the certificates and the trusted authority of each side: contrada help security"
        )
    return "is it started, is this its address, is a firewall between? contrada serve runs one"


async def _asked(
    address: str, approach: Approach
) -> tuple[float, float, float, Mapping[str, Any] | NotPermittedError]:
    """Returns the seconds to a broker's hello and answer, its lead in time, and its statistics."""
    began_s = time.monotonic()
    async with connect(address, approach, reconnect=False) as service:
        greeted_s, ahead_us = time.monotonic(), 0.0
        counts: Mapping[str, Any] | NotPermittedError
        try:
            asked_us = wall_clock_us()
            counts = await answered(address, service.broker_statistics())
            middle_us = (asked_us + wall_clock_us()) / 2
            ahead_us = counts.get("now_us", middle_us) - middle_us
        except NotPermittedError as error:
            counts = error
        return greeted_s - began_s, time.monotonic() - greeted_s, ahead_us / 1e6, counts


# --- networks -------------------------------------------------------------------------------------


def check_network(address: str, approach: Approach) -> Iterator[Finding]:
    """Yields the findings of the broker at an address, of all others, then of the network.

    Links name the brokers, as `NetworkInspection` follows them. Each broker is connected with the
    same token and certificates, so the user has to trust all of them.
    """
    try:
        brokers, left_out = run(_explored(address, approach))
    except ContradaError:
        yield from check_broker(address, approach)  # With the remedy for this error.
        return
    for name, seen in brokers.items():
        what = f"{name} at {seen.address}" if seen.address else name
        if seen.reason and not seen.is_asked:
            todo = "check it by its address, from where it can be reached: contrada doctor ADDRESS"
            yield Finding("warning", what, f"not checked: {seen.reason}", todo)
            continue
        for each in check_broker(seen.address, approach):
            yield structs.replace(each, what=what)
    what = f"the network of {address}"
    yield Finding("ok", what, f"{len(brokers)} brokers: {', '.join(map(repr, brokers))}")
    if left_out:
        todo = "check some of the others, too: contrada doctor ADDRESS..."
        yield Finding("warning", what, f"{left_out} more brokers are not checked", todo)
    yield from one_sided_links(brokers)
    yield from _versions(what, brokers)


async def _explored(address: str, approach: Approach) -> tuple[dict[str, SeenBroker], int]:
    """Returns the brokers by name, the first with its address, and the number of further ones."""
    async with connect(address, approach, reconnect=False) as start:
        is_local = is_loopback(start.reconnection.address.host)
        network = NetworkInspection(start, reach_with(approach), NetworkLimits(), is_local=is_local)
        await network.explore()
    next(iter(network.brokers.values())).address = address
    return network.brokers, network.left_out


def one_sided_links(brokers: Mapping[str, SeenBroker]) -> Iterator[Finding]:
    """Yields a fault for each link that only one of two answering brokers has."""
    for name, seen in brokers.items():
        for link in () if seen.held is None else seen.held.links:
            held = brokers[link.name].held if link.name in brokers else None
            if held is None or held.counts.get("links", 0) > len(held.links):
                continue  # It did not answer, or not with all of its links.
            if name not in {each.name for each in held.links}:
                found = f"{name!r} has a link to {link.name!r}, which has none to {name!r}"
                todo = "it was just lost, or is refused: look again, then at the log of serve -v"
                yield Finding("fault", f"link {name} to {link.name}", found, todo)


def _versions(what: str, brokers: Mapping[str, SeenBroker]) -> Iterator[Finding]:
    """Yields a warning if the answering brokers have several versions of Contrada."""
    names: dict[str, list[str]] = {}
    for name, seen in brokers.items():
        if seen.held is not None:
            names.setdefault(seen.held.version or "an earlier version", []).append(name)
    if len(names) > 1:
        shown = "; ".join(f"{version}: {', '.join(those)}" for version, those in names.items())
        todo = "upgrade the others, one at a time: deploy/rolling_restart.py"
        yield Finding("warning", what, f"versions differ: {shown}", todo)
