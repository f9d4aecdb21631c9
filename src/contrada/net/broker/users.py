"""`Users`: the users of a broker, read from a file; `Authenticator` identifies them.

    [users.desk]
    token = "scrypt$…"                      # made by `contrada user add`
    publish = "symbol any and price > 0"    # a filter, several in a list, or true for everything

docs/security.md describes all keys. A right that is not listed is not granted. A client without
token or certificate is the user `anonymous`, where there is one.
"""

import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from socket import AF_UNIX
from typing import Any, Final, Protocol, Self

from msgspec import Struct

from contrada.errors import ContradaError, FrameError, InputError
from contrada.model import FilterSet
from contrada.model.domains.values import time_us_of
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.wire.address import is_loopback
from contrada.net.wire.frames import Hello
from contrada.net.wire.tokens import TokenCheck, name_in, record_parts
from contrada.service.clock import wall_clock_us
from contrada.service.security.principals import EVERYTHING, NOT_PERMITTED, NOTHING, Principal
from contrada.service.settings import checked, read_toml

USERS_MAX: Final = 10_000
"""Users of a broker. Beyond it: InputError, and the former users stay."""

USER_NAME_CHARS_MAX: Final = 100
"""Characters of a user's name. Beyond it: InputError."""

ANONYMOUS: Final = "anonymous"
"""The user of a client that shows neither token nor certificate."""


class UserSettings(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings of one user."""

    token: str = ""
    certificate: str = ""
    publish: bool | str | list[str] = False
    subscribe: bool | str | list[str] = False
    publishers: list[str] | None = None
    durable: list[str] | None = None
    narrow: bool = False
    link: bool = False
    inspect: bool = False
    expires: datetime | None = None

    def principal(self, name: str) -> Principal:
        """Returns the principal of this name. Raises ContradaError with the wrong key."""
        return Principal(
            name,
            _filters("publish", self.publish),
            _filters("subscribe", self.subscribe),
            tuple([name] if self.publishers is None else self.publishers),
            tuple([name] if self.durable is None else self.durable),
            narrows=self.narrow,
            may_link=self.link,
            may_inspect=self.inspect,
            expires_us=None if self.expires is None else time_us_of(self.expires),
        )


class _UserFile(Struct, frozen=True, forbid_unknown_fields=True):
    users: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Users:
    """The users of a file at the time of reading."""

    principals: Mapping[str, Principal] = field(default_factory=dict)
    records: Mapping[str, str] = field(default_factory=dict)
    certificates: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a file. Raises InputError with the user and the wrong key."""
        return cls.of(str(path), cls.settings(path))

    @staticmethod
    def settings(path: Path) -> dict[str, UserSettings]:
        """Returns the settings of each user of a file. Raises InputError."""
        users = checked(str(path), read_toml(path), _UserFile).users
        return {
            name: checked(f"{path}: users.{name}", user, UserSettings)
            for name, user in users.items()
        }

    @classmethod
    def of(cls, source: str, users: Mapping[str, UserSettings]) -> Self:
        """Returns users with these settings; `source` names their file. Raises InputError."""
        if len(users) > USERS_MAX:
            raise InputError(source, f"more than USERS_MAX = {USERS_MAX} users")
        principals: dict[str, Principal] = {}
        records: dict[str, str] = {}
        certificates: dict[str, str] = {}
        for name, user in users.items():
            try:
                check_user_name(name)
                if user.token:
                    record_parts(user.token)
                principals[name] = user.principal(name)
            except ContradaError as error:
                raise InputError(source, f"users.{name}: {error}") from None
            if user.token:
                records[name] = user.token
            if user.certificate:
                other = certificates.setdefault(user.certificate, name)
                if other != name:
                    reason = f"users.{name}: found the certificate of {other!r} again"
                    raise InputError(source, reason)
        return cls(principals, records, certificates)

    def changed(self, others: "Users") -> set[str]:
        """Returns the users whose credentials differ in the others, or are missing."""
        mine, theirs = self._shown(), others._shown()
        return {name for name in mine if mine[name] != theirs.get(name)}

    def _shown(self) -> dict[str, tuple[str | None, str | None]]:
        certificates = {name: certificate for certificate, name in self.certificates.items()}
        return {name: (self.records.get(name), certificates.get(name)) for name in self.principals}

    def of_certificate(self, names: Iterable[str]) -> Principal | None:
        """Returns the user of one of these certificate names; None for no user, or several."""
        found = {self.certificates[name] for name in names if name in self.certificates}
        return self.principals[found.pop()] if len(found) == 1 else None


def check_user_name(name: str) -> None:
    """Raises InputError for an invalid user name."""
    is_fit = name.isprintable() and not set(name) & set("/* ")
    if not name or len(name) > USER_NAME_CHARS_MAX or not is_fit:
        expected = f"1 to {USER_NAME_CHARS_MAX} printable characters without blank, '/' and '*'"
        raise InputError("name", f"found {name!r}, expected {expected}")


def _filters(key: str, value: bool | str | list[str]) -> FilterSet:
    if isinstance(value, bool):
        return EVERYTHING if value else NOTHING
    try:
        found = FilterSet(map(FilterSet, [value] if isinstance(value, str) else value))
    except ContradaError as error:
        raise InputError(key, str(error)) from None
    for operator in found.unknown():
        raise InputError(key, f"the operator {operator!r} is not known: load its extension")
    return found


_KINDS: Final = {"URI": "uri:", "email": "email:"}
"""The prefixes of certificate names that are no host names, by their kind."""

_LOG: Final = logging.getLogger(__name__)


class TransportInfo(Protocol):
    """The properties of a transport; see `asyncio.BaseTransport`."""

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...  # noqa: D102


class Authenticator:
    """Identifies a connection by a token, by a certificate, or as anonymous.

    A token travels unencrypted inside the connection. So it is accepted only over TLS or from this
    machine, and an overheard token that is replayed elsewhere is refused unread.
    """

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
