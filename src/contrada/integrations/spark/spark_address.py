"""`check_form` and `check_listening`: checks of the addresses of Spark masters and Connect servers.

Spark itself tries for a minute to reach a master, and for ten minutes to reach a Connect server.
"""

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Final
from urllib.request import getproxies, proxy_bypass

from contrada.errors import EngineError, InputError

PROBE_WAIT_S: Final = 10.0
"""Seconds to connect to a master or Connect server. Beyond it: no session starts."""

REMOTE_PORT: Final = 15002
"""Default port of a Spark Connect server."""

MASTER_PORT: Final = 7077
"""Default port of a Spark master."""

_LOCAL: Final = r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[(\s*\d+\s*,){2}\s*\d+\s*\]"
_MASTER: Final = re.compile(rf"{_LOCAL}|yarn|k8s://\S+|spark://[^\s/]+")
_REMOTE: Final = re.compile(rf"{_LOCAL}|sc://[^\s/]+(/.*)?")
_PLACES: Final = re.compile(r"(sc|spark)://([^\s/]+)")
_PLACE: Final = re.compile(r"(?:.*@)?(?:\[(?P<v6>.+)\]|(?P<host>[^:]+))(?::(?P<port>\d{1,5}))?")


def check_form(master: str | None, remote: str | None) -> None:
    """Raises InputError for an address that Spark cannot parse."""
    if master is not None and not _MASTER.fullmatch(master):
        expected = "local, local[n], spark://host:port, yarn or k8s://…"
        raise InputError("--master", f"found {master!r}, expected {expected}")
    if remote is not None and not _REMOTE.fullmatch(remote):
        expected = "sc://host:port or local[n]"
        raise InputError("--remote", f"found {remote!r}, expected {expected}")


def check_listening(address: str) -> None:
    """Raises EngineError if no process listens at the address of a master or Connect server. One of
    several masters is enough. Other addresses are not checked, nor is a server behind a proxy.
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
    """Yields hosts and ports, where the address has a known form."""
    found = _PLACES.match(address)
    for each in found[2].split(",") if found else ():
        if place := _PLACE.fullmatch(each):
            usual = REMOTE_PORT if address.startswith("sc:") else MASTER_PORT
            yield place["v6"] or place["host"], int(place["port"] or usual)


def _is_behind_proxy(host: str) -> bool:
    """Whether gRPC connects to the host through a proxy."""
    with suppress(OSError):  # Only the proxy may know the name.
        if proxy_bypass(host):
            return False
    return bool(getproxies().keys() & {"grpc", "https", "http"})
