"""`Sinks`: sends each event in one HTTP request, to public addresses only.

Strangers name sinks, so a sink could be a service that only this host can reach: on the loopback
interface, in its network, or the metadata service of a cloud (server-side request forgery).
Therefore the addresses of a host name are checked when a connection is made, and the connection is
made to exactly the checked address. Redirects are not followed.

A sink may lead back to this port. Each request names its sender (`PUSHED_BY`), and the HTTP port
refuses requests that it has sent itself.
"""

import asyncio
import secrets
import socket
import ssl
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httpcore

from contrada.errors import AddressError, InvalidValueError
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.net.wire.address import check_host

SINK_CHARACTERS_MAX: Final = 2_048
"""Characters of the address of a sink. Beyond it: the subscription is refused."""

PUSHED_BY: Final = "Contrada-Push"
"""The header that names the HTTP port that pushes an event: a random name for each process."""

_ADDRESSES_TRIED: Final = 3
_NAT64: Final = IPv6Network("64:ff9b::/96")
_UNICAST: Final = IPv6Network("2000::/3")
"""The part of IPv6 that is assigned to hosts of the Internet."""
_OWN_USE: Final = (IPv4Network("192.0.0.0/24"), IPv4Network("168.63.129.16/32"))
"""IETF protocol assignments, and the virtual host of a cloud."""
_EXPECTED: Final = "expected http://host/path or https://host/path"
_BAD: Final = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError)


class PushAnswer(NamedTuple):
    """The status of a sink's answer, 0 and a reason without one; and its `Retry-After`."""

    status: int
    reason: str = ""
    retry_after: str = ""


class Sinks:
    """Sends events over a pool of connections, until `aclose`."""

    def __init__(
        self, limits: GatewayLimits = GatewayLimits(), *, is_private_allowed: bool = False
    ) -> None:
        self._limits = limits
        self._is_private_allowed = is_private_allowed
        self.identity = secrets.token_hex(8)
        """The value of the header `PUSHED_BY`."""
        self._pool: httpcore.AsyncConnectionPool | None = None

    def check(self, sink: str) -> None:
        """Checks the address of a sink, without resolving its name. Raises InvalidValueError."""
        if len(sink) > SINK_CHARACTERS_MAX:
            raise InvalidValueError(sink[:80], f"more than {SINK_CHARACTERS_MAX} characters")
        try:
            parts = urlsplit(sink)
            host, _ = parts.hostname, parts.port
            if not sink.isascii() or parts.scheme not in ("http", "https") or not host:
                raise ValueError
            if any(each.isspace() or not each.isprintable() for each in sink):
                raise ValueError
        except ValueError:
            raise InvalidValueError(sink, _EXPECTED) from None
        if parts.username is not None or parts.password is not None:
            raise InvalidValueError("sink", "no user and password in an address: send headers")
        address = _address_in(host)
        if address is None:
            try:
                check_host(host)
            except AddressError:
                raise InvalidValueError(sink, _EXPECTED) from None
        elif not self._is_allowed(address):
            raise InvalidValueError(sink, "sinks at private addresses are not allowed here")

    def _is_allowed(self, address: IPv4Address | IPv6Address) -> bool:
        return self._is_private_allowed or is_public(address)

    async def push(self, sink: str, headers: Iterable[tuple[str, str]], body: bytes) -> PushAnswer:
        """Sends one event; returns the answer."""
        limits = self._limits
        if self._pool is None:
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=ssl.create_default_context(),
                max_connections=limits.push_connections_max,
                max_keepalive_connections=limits.push_connections_max // 2,
                keepalive_expiry=30.0,
                network_backend=_GuardedBackend(self._is_allowed),
            )
        packed = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers]
        request = self._pool.stream("POST", sink, headers=packed, content=body)
        try:
            async with asyncio.timeout(limits.push_wait_s), request as answer:
                read = 0
                async for part in answer.aiter_stream():
                    read += len(part)
                    if read > limits.push_answer_bytes_max:
                        break
                given = {name.lower(): value.decode("latin-1") for name, value in answer.headers}
                return PushAnswer(answer.status, retry_after=given.get(b"retry-after", ""))
        except TimeoutError:
            return PushAnswer(0, f"no answer within {limits.push_wait_s:g} s")
        except _BAD as error:
            return PushAnswer(0, str(error) or type(error).__name__)

    async def aclose(self) -> None:
        """Closes all connections."""
        if self._pool is not None:
            await self._pool.aclose()


def _address_in(host: str) -> IPv4Address | IPv6Address | None:
    """The address of a literal host, also in the forms of resolvers: 127.1, 0x7f000001."""
    plain = host.lower().removesuffix(".")
    if plain == "localhost" or plain.endswith(".localhost"):
        return IPv4Address("127.0.0.1")
    try:
        return ip_address(plain)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(plain))
    except OSError:
        return None


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is on the public Internet, also one embedded in an IPv6 address."""
    if isinstance(address, IPv6Address):
        inner: Any = address.ipv4_mapped or address.sixtofour
        if address.teredo is not None:
            inner = address.teredo[1]
        if address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _UNICAST:  # `is_global` holds for unassigned addresses, too.
            return False
    if any(address in each for each in _OWN_USE):
        return False
    return address.is_global and not address.is_multicast


class _GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects to checked addresses only."""

    def __init__(self, is_allowed: Any) -> None:
        self._is_allowed = is_allowed
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self, host: str, port: int, *arguments: Any, **options: Any
    ) -> httpcore.AsyncNetworkStream:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        for each in addresses:
            if not self._is_allowed(ip_address(each.partition("%")[0])):
                # The owner of the sink sees this text, so it does not reveal the address.
                raise OSError(f"{host} is at an address that is not public")
        failure: Exception | None = None
        for each in addresses[:_ADDRESSES_TRIED]:
            try:
                return await self._backend.connect_tcp(each, port, *arguments, **options)
            except httpcore.ConnectError as error:
                failure = error
        raise failure or OSError(f"{host} has no address")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def check_headers(given: Mapping[str, str]) -> None:
    """Checks headers that a subscriber wants in each push. Raises InvalidValueError."""
    for name, value in given.items():
        good = name.replace("-", "").isalnum() and name.isascii() and len(name) <= 100
        if not good or name.lower() in _OWN or name.lower().startswith("ce-"):
            raise InvalidValueError(name, "no header that may be set")
        if not value.isascii() or not value.isprintable() or len(value) > 4_096:
            raise InvalidValueError(name, "the value of a header is one line of ASCII")


_OWN: Final = {
    *("host", "connection", "content-length", "content-type", PUSHED_BY.lower(), "expect"),
    *("keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer"),
    *("transfer-encoding", "upgrade"),
}
"""Headers that a push has of its own, or that concern its connection."""
