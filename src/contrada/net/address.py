"""Addresses of brokers: `contrada://host:port`, the port 7655 where none is given.

`contradas://host:port` is a broker that is spoken to over TLS. Several that stand for one another:
`contrada://a:7655,b:7655`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from contrada.errors import AddressError

SCHEME: Final = "contrada"
SCHEME_TLS: Final = "contradas"
PORT_DEFAULT: Final = 7655
_EXPECTED: Final = (
    f"contrada://host or contrada://host:port, for example contrada://127.0.0.1:{PORT_DEFAULT}"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens."""

    host: str
    port: int = PORT_DEFAULT
    is_tls: bool = False

    @property
    def scheme(self) -> str:
        """What stands before `://`."""
        return SCHEME_TLS if self.is_tls else SCHEME

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """The address that a text names. Raises AddressError that says what was expected."""
    given: object = text
    if not isinstance(given, str):
        raise AddressError(text, _EXPECTED)
    found = _address_of(text)
    if found is None:
        meant = f"{SCHEME}://{text.rpartition('://')[2]}"
        hint = "" if _address_of(meant) is None else f"; did you mean {meant}?"
        raise AddressError(text, _EXPECTED + hint)
    return found


def parse_addresses(given: str | Sequence[str]) -> tuple[Address, ...]:
    """The addresses that a text names, parted by commas, or that several texts name; each once.

    One without a scheme has that of the first in its text. Raises AddressError.
    """
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
    """Addresses as one text, which `parse_addresses` reads."""
    first, *further = addresses
    shown = (str(each).removeprefix(f"{first.scheme}://") for each in further)
    return ",".join([str(first), *shown])


def _address_of(text: str) -> Address | None:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    extra = parts.path.strip("/") or parts.query or parts.fragment or parts.username
    if (
        parts.scheme not in (SCHEME, SCHEME_TLS)
        or not host
        or extra
        or port == 0
        or parts.netloc.endswith(":")
    ):
        return None
    if any(c.isspace() or c == "," or not c.isprintable() for c in text):
        return None
    try:
        check_host(host)
    except AddressError:
        return None
    return Address(host, PORT_DEFAULT if port is None else port, parts.scheme == SCHEME_TLS)


def check_host(host: str) -> None:
    """Refuse what the system cannot even be asked for. Raises AddressError."""
    try:
        asked = host.encode("idna")
    except UnicodeError:
        asked = b""
    if not asked:
        raise AddressError(host, "the name of a host or its IP address")
