"""Where Spark is asked to run: what may be said of it, and whether anybody is there.

Spark itself tries for a minute to reach a master, and for ten a server of Spark Connect.
"""

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Final
from urllib.request import getproxies, proxy_bypass

from contrada.errors import EngineError, InputError

PROBE_WAIT_S: Final = 10.0
"""How long a master, or a server of Spark Connect, may take to take a connection. Beyond it:
nothing is begun there."""

REMOTE_PORT: Final = 15002
"""Where a server of Spark Connect listens, if nothing is said."""

MASTER_PORT: Final = 7077
"""Where a master of Spark listens, if nothing is said."""

_LOCAL: Final = r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[(\s*\d+\s*,){2}\s*\d+\s*\]"
_MASTER: Final = re.compile(rf"{_LOCAL}|yarn|k8s://\S+|spark://[^\s/]+")
_REMOTE: Final = re.compile(rf"{_LOCAL}|sc://[^\s/]+(/.*)?")
_PLACES: Final = re.compile(r"(sc|spark)://([^\s/]+)")
_PLACE: Final = re.compile(r"(?:.*@)?(?:\[(?P<v6>.+)\]|(?P<host>[^:]+))(?::(?P<port>\d{1,5}))?")


def check_form(master: str | None, remote: str | None) -> None:
    """Raise InputError where Spark would not know what is meant."""
    if master is not None and not _MASTER.fullmatch(master):
        expected = "local, local[n], spark://host:port, yarn or k8s://…"
        raise InputError("--master", f"found {master!r}, expected {expected}")
    if remote is not None and not _REMOTE.fullmatch(remote):
        expected = "sc://host:port or local[n]"
        raise InputError("--remote", f"found {remote!r}, expected {expected}")


def check_listening(address: str) -> None:
    """Raise EngineError where nobody listens at the address of a master or of a server.

    Of several masters one is enough. What is neither has nothing to be asked, and a server that
    is reached by way of a proxy is left to Spark.
    """
    places = [*_places(address)]
    if not places:
        return
    failure: OSError | None = None
    for host, port in places:
        if address.startswith("sc:") and _is_behind_proxy(host):
            return
        try:
            with socket.create_connection((host, port), PROBE_WAIT_S):
                return
        except OSError as error:
            failure = error
    kind = "server of Spark Connect" if address.startswith("sc:") else "master of Spark"
    named = ", ".join(f"{host}:{port}" for host, port in places)
    raise EngineError(f"no {kind} listens at {named}: {failure}") from failure


def _places(address: str) -> Iterator[tuple[str, int]]:
    """Hosts and ports, as far as they are understood."""
    found = _PLACES.match(address)
    for each in found[2].split(",") if found else ():
        if place := _PLACE.fullmatch(each):
            usual = REMOTE_PORT if address.startswith("sc:") else MASTER_PORT
            yield place["v6"] or place["host"], int(place["port"] or usual)


def _is_behind_proxy(host: str) -> bool:
    """Whether gRPC would ask a proxy for it."""
    with suppress(OSError):  # A name that only the proxy knows.
        if proxy_bypass(host):
            return False
    return bool(getproxies().keys() & {"grpc", "https", "http"})
