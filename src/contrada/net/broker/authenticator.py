"""`Authenticator`: identifies a connection by a token, by a certificate, or as anonymous.

A token travels unencrypted inside the connection. So it is accepted only over TLS or from this
machine, and an overheard token that is replayed elsewhere is refused unread.
"""

import logging
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from socket import AF_UNIX
from typing import Any, Final, Protocol

from contrada.errors import FrameError
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.users import ANONYMOUS, Users
from contrada.net.wire.address import is_loopback
from contrada.net.wire.frames import Hello
from contrada.net.wire.tokens import TokenCheck, name_in
from contrada.service.clock import wall_clock_us
from contrada.service.security.principals import NOT_PERMITTED, Principal

_KINDS: Final = {"URI": "uri:", "email": "email:"}
"""The prefixes of certificate names that are no host names, by their kind."""

_LOG: Final = logging.getLogger(__name__)


class TransportInfo(Protocol):
    """The properties of a transport; see `asyncio.BaseTransport`."""

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...  # noqa: D102


class Authenticator:
    """Identifies the connections of a broker."""

    def __init__(self, users: Users, limits: BrokerLimits = BrokerLimits()) -> None:
        self.users = users
        """The users that may connect now; it can be replaced."""
        self._check = TokenCheck(
            lambda name: self.users.records.get(name),
            waiting_max=limits.token_checks_max,
            known_max=limits.known_tokens_max,
        )

    def identify(self, transport: TransportInfo, hello: Hello) -> Principal | Awaitable[Principal]:
        """Returns the principal, an awaitable for a token. Both raise FrameError without a user."""
        if hello.token:
            if not is_private(transport):
                raise _refusal("a token is taken over TLS (contradas://) or from this machine only")
            if self._check.is_known(hello.token):
                return self._check_expiry(self.users.principals.get(name_in(hello.token)))
            return self._check_token(hello.token)
        names = [*certificate_names(transport.get_extra_info("peercert") or {})]
        found = self.users.of_certificate(names) if names else None
        if found is None:
            found = self.users.principals.get(ANONYMOUS)
        if found is None:
            shown = f"no user has a certificate of {names[0]!r}" if names else "say who you are"
            raise _refusal(f"{shown}: this broker wants a token, or a certificate, of its users")
        return self._check_expiry(found)

    def current(self, principal: Principal) -> Principal | None:
        """Returns the present rights of a connected principal; None where it may not stay."""
        found = self.users.principals.get(principal.name)
        return found if found is not None and not _is_expired(found) else None

    async def _check_token(self, token: str) -> Principal:
        if not await self._check.is_right(token):
            _LOG.info("a token of %(user)r is refused", {"user": name_in(token)})
            raise _refusal("the token is not, or no longer, that of a user")
        return self._check_expiry(self.users.principals.get(name_in(token)))

    def _check_expiry(self, principal: Principal | None) -> Principal:
        if principal is None:  # The user was removed during the check.
            raise _refusal("this user is gone")
        if _is_expired(principal):
            raise _refusal(f"the user {principal.name!r} has expired")
        return principal


def is_private(transport: TransportInfo) -> bool:
    """Returns whether the connection is encrypted or local."""
    if transport.get_extra_info("ssl_object") is not None:
        return True
    socket = transport.get_extra_info("socket")
    if socket is not None and socket.family == AF_UNIX:
        return True
    peer = transport.get_extra_info("peername")
    return bool(peer) and is_loopback(str(peer[0]))


def certificate_names(certificate: dict[str, Any]) -> Iterator[str]:
    """Yields the names of a certificate: the alternative names, else the common name.

    A name that is no host name gets its kind as a prefix: an authority that checks one kind may let
    the owner choose another. Unknown kinds are skipped.
    """
    alternatives = certificate.get("subjectAltName", ())
    for kind, value in alternatives:
        if kind == "DNS":
            yield from _host_names(value)
        elif kind == "IP Address":
            with suppress(ValueError):
                yield f"ip:{ip_address(value.strip())}"
        elif kind in _KINDS:
            yield f"{_KINDS[kind]}{value}"
    if not alternatives:
        for part in certificate.get("subject", ()):
            for key, value in part:
                if key == "commonName":
                    yield from _host_names(value)


def _host_names(name: str) -> Iterator[str]:
    if not name.lower().startswith(("ip:", *_KINDS.values())):
        yield name


def _is_expired(principal: Principal) -> bool:
    return principal.expires_us is not None and principal.expires_us <= wall_clock_us()


def _refusal(reason: str) -> FrameError:
    return FrameError(NOT_PERMITTED, reason)
