"""`check_network`: the faults of all brokers of a network, and of the links between them.

Links name the brokers, as `NetworkInspection` follows them. Each broker is connected with the same
token and certificates, so the user has to trust all of them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import structs

from contrada.cli.broker_findings import Finding, check_broker
from contrada.cli.client_command import Approach, run
from contrada.errors import ContradaError
from contrada.net.client.client_limits import NetworkLimits
from contrada.net.client.network_inspection import NetworkInspection, SeenBroker
from contrada.net.client.tcp_service import TcpService, reach_with
from contrada.net.wire.address import is_loopback

_UNKNOWN_VERSION: Final = "an earlier version"


def check_network(address: str, approach: Approach) -> Iterator[Finding]:
    """Yields the findings of the broker at an address, of all others, then of the network."""
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
    async with TcpService(address, reconnect=False, options=approach) as start:
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
            names.setdefault(seen.held.version or _UNKNOWN_VERSION, []).append(name)
    if len(names) > 1:
        shown = "; ".join(f"{version}: {', '.join(those)}" for version, those in names.items())
        todo = "upgrade the others, one at a time: deploy/rolling_restart.py"
        yield Finding("warning", what, f"versions differ: {shown}", todo)
