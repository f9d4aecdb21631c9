"""Addresses of brokers: `contrada://host:port`, the port 7655 where none is given.

Several that stand for one another: `contrada://a:7655,b:7655`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from contrada.errors import AddressError

SCHEME: Final = "contrada"
PORT_DEFAULT: Final = 7655
_EXPECTED: Final = (
    f"contrada://host or contrada://host:port, for example contrada://127.0.0.1:{PORT_DEFAULT}"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens."""

    host: str
    port: int = PORT_DEFAULT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SCHEME}://{host}:{self.port}"


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

    Raises AddressError.
    """
    texts = given if isinstance(given, list | tuple) else (given,)
    found: dict[Address, None] = {}
    for text in texts:
        parts = text.split(",") if isinstance(text, str) else [text]
        for number, part in enumerate(parts):
            is_further = number > 0 and "://" not in part
            found[parse_address(f"{SCHEME}://{part}" if is_further else part)] = None
    if not found:
        raise AddressError(str(given), _EXPECTED)
    return tuple(found)


def shown_addresses(addresses: Sequence[Address]) -> str:
    """Addresses as one text, which `parse_addresses` reads."""
    first, *further = map(str, addresses)
    return ",".join([first, *(each.removeprefix(f"{SCHEME}://") for each in further)])


def _address_of(text: str) -> Address | None:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    extra = parts.path.strip("/") or parts.query or parts.fragment or parts.username
    if parts.scheme != SCHEME or not host or extra or port == 0 or parts.netloc.endswith(":"):
        return None
    if any(c.isspace() or c == "," or not c.isprintable() for c in text):
        return None
    try:
        check_host(host)
    except AddressError:
        return None
    return Address(host, PORT_DEFAULT if port is None else port)


def check_host(host: str) -> None:
    """Refuse what the system cannot even be asked for. Raises AddressError."""
    try:
        asked = host.encode("idna")
    except UnicodeError:
        asked = b""
    if not asked:
        raise AddressError(host, "the name of a host or its IP address")
