"""`Address`: the address of a broker, as `contrada://host:port`.

`contradas://` is for TLS, `contrada+ws://host:port/path` for WebSocket, `contrada+wss://` for both.
Several alternative addresses: `contrada://a:7655,b:7655`.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from contrada.errors import AddressError, MissingRequirementError

SCHEME: Final = "contrada"
SCHEME_TLS: Final = "contradas"
SCHEME_WS: Final = "contrada+ws"
SCHEME_WSS: Final = "contrada+wss"
PORT_DEFAULT: Final = 7655
PATH_DEFAULT: Final = "/contrada"
"""The path of WebSocket connections at a broker's HTTP port."""

_PORTS: Final = {SCHEME: PORT_DEFAULT, SCHEME_TLS: PORT_DEFAULT, SCHEME_WS: 80, SCHEME_WSS: 443}
_OF_HTTP: Final = {"http": SCHEME_WS, "ws": SCHEME_WS, "https": SCHEME_WSS, "wss": SCHEME_WSS}
"""Schemes of an HTTP port, and those by which a client connects there."""

_SECURE: Final = (SCHEME_TLS, SCHEME_WSS)
_EXPECTED: Final = (
    f"contrada://host or contrada://host:port, for example contrada://127.0.0.1:{PORT_DEFAULT}"
)


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a broker; with a path, by WebSocket."""

    host: str
    port: int = PORT_DEFAULT
    is_tls: bool = False
    path: str = ""
    called: str = ""
    """The text of an address that only this process can reach."""

    @property
    def scheme(self) -> str:
        """The part before `://`."""
        if self.path:
            return SCHEME_WSS if self.is_tls else SCHEME_WS
        return SCHEME_TLS if self.is_tls else SCHEME

    @property
    def place(self) -> str:
        """The part after `://`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}{self.path}"

    @property
    def is_private(self) -> bool:
        """Whether messages to this address are encrypted or local, so that a token may be sent."""
        return self.is_tls or is_loopback(self.host)

    def __str__(self) -> str:
        return self.called or f"{self.scheme}://{self.place}"


def parse_address(text: str) -> Address:
    """Returns the address in a text. Raises AddressError, MissingRequirementError."""
    given: object = text
    if not isinstance(given, str):
        raise AddressError(text, _EXPECTED)
    found = _address_of(text)
    if found is None:
        scheme, _, place = text.rpartition("://")
        meant = f"{_OF_HTTP.get(scheme, SCHEME)}://{place}"
        hint = "" if _address_of(meant) is None else f"; did you mean {meant}?"
        raise AddressError(text, _EXPECTED + hint)
    if found.path and find_spec("websockets") is None:
        remedy = f"pip install 'contrada[http]', for {found}"
        raise MissingRequirementError("websockets", remedy)
    return found


def parse_addresses(given: str | Sequence[str] | Address) -> tuple[Address, ...]:
    """Returns the distinct addresses of texts with commas. Raises as `parse_address`.

    An address without a scheme has that of the first in its text.
    """
    if isinstance(given, Address):
        return (given,)
    texts = given if isinstance(given, list | tuple) else (given,)
    found: dict[Address, None] = {}
    for text in texts:
        parts = text.split(",") if isinstance(text, str) else [text]
        first = parse_address(parts[0])
        found[first] = None
        for part in parts[1:]:
            found[parse_address(part if "://" in part else f"{first.scheme}://{part}")] = None
    if not found:
        raise AddressError(str(given), _EXPECTED)
    return tuple(found)


def shown_addresses(addresses: Sequence[Address]) -> str:
    """Returns addresses as one text for `parse_addresses`."""
    first, *further = addresses
    shown = (each.place if each.scheme == first.scheme else str(each) for each in further)
    return ",".join([str(first), *shown])


def _address_of(text: str) -> Address | None:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    scheme, path = parts.scheme, parts.path.rstrip("/")
    is_carried = scheme in (SCHEME_WS, SCHEME_WSS)
    extra = parts.query or parts.fragment or parts.username or (path and not is_carried)
    if scheme not in _PORTS or not host or extra or port == 0 or parts.netloc.endswith(":"):
        return None
    if any(c.isspace() or c == "," or not c.isprintable() for c in text) or not path.isascii():
        return None
    try:
        check_host(host)
    except AddressError:
        return None
    path = path or PATH_DEFAULT if is_carried else ""
    return Address(host, _PORTS[scheme] if port is None else port, scheme in _SECURE, path)


def check_host(host: str) -> None:
    """Raises AddressError for a host that the system cannot resolve."""
    try:
        asked = host.encode("idna")
    except UnicodeError:
        asked = b""
    if not asked:
        raise AddressError(host, "the name of a host or its IP address")


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine, by its name or address."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
