"""`Sinks`: sends each event in one HTTP request, to allowed addresses only; fetches documents.

`SinkRules` are applied when a connection is made, to the addresses that the host name has then, and
the connection is made to exactly the checked address. Redirects are not followed.

Before its first event a sink is asked for permission (the web-hook handshake), so that nobody can
direct events at a service that does not expect them.

A sink may lead back to this port. Each request names its sender (`PUSHED_BY`), and the HTTP port
refuses requests that it has sent itself.

Source: CloudEvents, HTTP 1.1 Web Hooks 1.0.2, §4 (abuse protection).
"""

import asyncio
import secrets
import socket
import ssl
from collections.abc import Iterable, Mapping
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httpcore

from contrada.errors import AddressError, InvalidValueError
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.sink_rules import SinkRules, address_in
from contrada.net.wire.address import check_host
from contrada.service.loop_guards import in_daemon

SINK_CHARACTERS_MAX: Final = 2_048
"""Characters of the address of a sink. Beyond it: the subscription is refused."""

PUSHED_BY: Final = "Contrada-Push"
"""The header that names the HTTP port that pushes an event: a random name for each process."""

ORIGIN: Final = "WebHook-Request-Origin"
"""The header that names this sender in the handshake, and in each push."""

_RATE_DIGITS_MAX: Final = 9
_ADDRESSES_TRIED: Final = 3
_EXPECTED: Final = "expected http://host/path or https://host/path"
_BAD: Final = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError)
_NOTHING: Final[Mapping[str, str]] = {}


class PushAnswer(NamedTuple):
    """The status and headers of a sink's answer, by lower-case names; or 0 and a reason.

    `body` is its beginning.
    """

    status: int
    reason: str = ""
    headers: Mapping[str, str] = _NOTHING
    body: bytes = b""

    @property
    def interval_s(self) -> float | None:
        """Seconds between events by the rate that the sink allows; None without a valid rate."""
        rate = self.headers.get("webhook-allowed-rate", "*").strip()
        if rate == "*":
            return 0.0
        is_number = rate.isascii() and rate.isdigit() and len(rate) <= _RATE_DIGITS_MAX
        return 60 / int(rate) if is_number and int(rate) else None


class Sinks:
    """Sends events over a pool of connections, until `aclose`."""

    def __init__(
        self, limits: GatewayLimits = GatewayLimits(), rules: SinkRules = SinkRules()
    ) -> None:
        self._limits = limits
        self.rules = rules
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
        if address_in(host) is None:
            try:
                check_host(host)
            except AddressError:
                raise InvalidValueError(sink, _EXPECTED) from None
        if not self.rules.may_allow(*place_of(sink)):
            raise InvalidValueError(sink, "this broker does not allow sinks there")

    async def ask(self, sink: str, headers: Iterable[tuple[str, str]]) -> PushAnswer:
        """Asks a sink for permission; returns its answer, with a reason where it has not agreed."""
        answer = await self._request("OPTIONS", sink, headers, b"")
        allowed = answer.headers.get("webhook-allowed-origin", "").strip().lower()
        if answer.reason:
            return answer
        if allowed not in ("*", self.rules.origin.lower()):
            reason = f"it answers OPTIONS with {answer.status}, and does not allow this origin"
            return answer._replace(reason=reason)
        if answer.interval_s is None:
            return answer._replace(reason="it allows no valid rate")
        return answer

    async def push(self, sink: str, headers: Iterable[tuple[str, str]], body: bytes) -> PushAnswer:
        """Sends one event; returns the answer."""
        return await self._request("POST", sink, headers, body)

    async def fetch(self, address: str) -> str:
        """Returns a document in UTF-8, of at most `trial_bytes_max`. Raises InvalidValueError."""
        self.check(address)
        most = self._limits.trial_bytes_max
        answer = await self._request("GET", address, (), b"", most)
        if answer.status != HTTPStatus.OK:
            reason = answer.reason or f"its server answers {answer.status}"
            raise InvalidValueError(address, reason)
        if len(answer.body) > most:
            raise InvalidValueError(address, f"it has more than trial_bytes_max = {most} bytes")
        try:
            return answer.body.decode()
        except UnicodeDecodeError:
            raise InvalidValueError(address, "expected a document in UTF-8") from None

    async def _request(
        self,
        method: str,
        sink: str,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        most: int | None = None,
    ) -> PushAnswer:
        limits = self._limits
        most = limits.push_answer_bytes_max if most is None else most
        if self._pool is None:
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=ssl.create_default_context(),
                max_connections=limits.push_connections_max,
                max_keepalive_connections=limits.push_connections_max // 2,
                keepalive_expiry=30.0,
                network_backend=_GuardedBackend(self.rules),
            )
        own = (("Host", urlsplit(sink).netloc), (ORIGIN, self.rules.origin))
        packed = [(name.encode("ascii"), value.encode("ascii")) for name, value in (*own, *headers)]
        request = self._pool.stream(method, sink, headers=packed, content=body)
        try:
            async with asyncio.timeout(limits.push_wait_s), request as answer:
                read = bytearray()
                async for part in answer.aiter_stream():
                    read += part
                    if len(read) > most:
                        break
                given = {
                    name.lower().decode("latin-1"): value.decode("latin-1")
                    for name, value in answer.headers
                }
                return PushAnswer(answer.status, headers=given, body=bytes(read))
        except TimeoutError:
            return PushAnswer(0, f"no answer within {limits.push_wait_s:g} s")
        except _BAD as error:
            return PushAnswer(0, str(error) or type(error).__name__)

    async def aclose(self) -> None:
        """Closes all connections."""
        if self._pool is not None:
            await self._pool.aclose()


def place_of(sink: str) -> tuple[str, int]:
    """The host and the port of the address of a sink."""
    parts = urlsplit(sink)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


class _GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects to allowed addresses only."""

    def __init__(self, rules: SinkRules) -> None:
        self._rules = rules
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self, host: str, port: int, *arguments: Any, **options: Any
    ) -> httpcore.AsyncNetworkStream:
        # A name server may never answer: the few threads of the event loop would wait for it.
        resolve = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await in_daemon(resolve)
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        for each in addresses:
            if not self._rules.allows(host, port, ip_address(each.partition("%")[0])):
                raise OSError(f"{host} is at {each}, which the setting `sinks` does not allow")
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
        if not good or name.lower() in _OWN or name.lower().startswith(("ce-", "webhook-")):
            raise InvalidValueError(name, "no header that may be set")
        if not value.isascii() or not value.isprintable() or len(value) > 4_096:
            raise InvalidValueError(name, "the value of a header is one line of ASCII")


_OWN: Final = {
    *("host", "connection", "content-length", "content-type", PUSHED_BY.lower(), "expect"),
    *("keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer"),
    *("transfer-encoding", "upgrade"),
}
"""Headers that a push has of its own, or that concern its connection."""
