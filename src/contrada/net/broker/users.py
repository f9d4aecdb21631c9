"""`Users`: the users of a broker, read from a file; `Authenticator` identifies them.

    [users.desk]
    token = "blake2b$…"                     # made by `contrada user add`
    publish = "symbol any and price > 0"    # a filter, several in a list, or true for everything

    groups = ["quotes"]                     # and the rights of [groups.quotes], see `fill_template`

docs/security.md describes all keys. A right that is not listed is not granted. A client without
token or certificate is the user `anonymous`, where there is one.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from ipaddress import ip_address
from itertools import chain
from pathlib import Path
from socket import AF_UNIX
from typing import Any, Final, NamedTuple, Self

from msgspec import Struct, structs

from contrada.errors import ContradaError, FrameError, InputError, ParseError
from contrada.model import FilterSet
from contrada.model.domains.values import time_us_of
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.jwt_verifier import JwtIdentity, JwtVerifier
from contrada.net.wire.address import is_loopback
from contrada.net.wire.frames import Hello
from contrada.net.wire.tokens import TokenCheck, is_jwt, name_in, record_parts
from contrada.service.clock import wall_clock_us
from contrada.service.security.principals import (
    EVERYTHING,
    NOT_PERMITTED,
    NOTHING,
    UNLIMITED,
    Principal,
    Quotas,
)
from contrada.service.settings import checked, read_toml

USERS_MAX: Final = 10_000
"""Users of a broker. Beyond it: InputError, and the former users stay."""

USER_NAME_CHARS_MAX: Final = 100
"""Characters of a user's name. Beyond it: InputError."""

ANONYMOUS: Final = "anonymous"
"""The user of a client that shows neither token nor certificate."""


class RightsSettings(
    Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """The rights of a group, or of one user. Those of a group are templates."""

    publish: bool | str | list[str] = False
    subscribe: bool | str | list[str] = False
    publishers: list[str] | None = None
    durable: list[str] | None = None
    narrow: bool = False
    link: bool = False
    inspect: bool = False
    sinks: bool = False
    block: bool = True
    jwt: str = ""
    """The group, or for a user the subject, in tokens from outside."""
    quota: Quotas = UNLIMITED


class UserSettings(RightsSettings, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings of one user."""

    token: str = ""
    certificate: str = ""
    old_token: str = ""
    old_token_ends: datetime | None = None
    groups: list[str] = []
    expires: datetime | None = None

    def rights(
        self, name: str, groups: Mapping[str, RightsSettings]
    ) -> Iterator[tuple[str, RightsSettings]]:
        """Yields the user's own rights, and those of its groups, each with the name of the group.

        Raises InputError for an unknown group or a wrong template.
        """
        yield "", self
        for each in self.groups:
            if each not in groups:
                found = ", ".join(groups) or "none"
                raise InputError("groups", f"found {each!r}, expected one of the groups: {found}")
            yield each, _filled(each, groups[each], name)

    def principal(self, name: str, groups: Mapping[str, RightsSettings] = {}) -> Principal:
        """Returns the principal of this name. Raises ContradaError with the wrong key."""
        sources = [*self.rights(name, groups)]
        rights = [each for _, each in sources]
        quotas, quota_groups = _first_quotas(sources)
        return Principal(
            name,
            _union("publish", [each.publish for each in rights]),
            _union("subscribe", [each.subscribe for each in rights]),
            _names([each.publishers for each in rights], name),
            _names([each.durable for each in rights], name),
            narrows=any(each.narrow for each in rights),
            may_link=any(each.link for each in rights),
            may_inspect=any(each.inspect for each in rights),
            may_push=any(each.sinks for each in rights),
            may_block=all(each.block for each in rights),
            quotas=quotas,
            quota_groups=quota_groups,
            expires_us=None if self.expires is None else time_us_of(self.expires),
        )


def _filled(group: str, rights: RightsSettings, user: str) -> RightsSettings:
    """Returns the rights of a group for one of its users. Raises InputError."""
    try:
        return structs.replace(
            rights,
            publish=fill_templates(rights.publish, user),
            subscribe=fill_templates(rights.subscribe, user),
            publishers=fill_names(rights.publishers, user),
            durable=fill_names(rights.durable, user),
        )
    except InputError as error:
        raise InputError(f"groups.{group}", error.reason) from None


def _union(key: str, values: Iterable[bool | str | list[str]]) -> FilterSet:
    """Returns the union of the filters of several rights. Raises InputError."""
    parts = [_filters(key, each) for each in values if each is not False]
    if EVERYTHING in parts:
        return EVERYTHING
    return parts[0] if len(parts) == 1 else FilterSet(parts) if parts else NOTHING


def _names(several: Iterable[list[str] | None], name: str) -> tuple[str, ...]:
    """Returns the union of several lists of names; the user's name where there is no list."""
    lists = [each for each in several if each is not None]
    return tuple(dict.fromkeys(chain.from_iterable(lists))) if lists else (name,)


def _first_quotas(sources: Iterable[tuple[str, RightsSettings]]) -> tuple[Quotas, dict[str, str]]:
    """Returns each quota as the first of several rights sets it, and the group of each."""
    limits: dict[str, int] = {}
    groups: dict[str, str] = {}
    for group, rights in sources:
        own = rights.quota.limits()
        limits, groups = own | limits, dict.fromkeys(own, group) | groups
    return Quotas(**limits), groups


class UserFile(NamedTuple):
    """The settings in a file of users."""

    users: Mapping[str, UserSettings]
    groups: Mapping[str, RightsSettings]


class _FileTables(Struct, frozen=True, forbid_unknown_fields=True):
    users: dict[str, Any] = {}
    groups: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Users:
    """The users of a file at the time of reading."""

    principals: Mapping[str, Principal] = field(default_factory=dict)
    records: Mapping[str, str] = field(default_factory=dict)
    certificates: Mapping[str, str] = field(default_factory=dict)
    old_records: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)
    """The records of tokens that are being replaced, each with the time of its end."""
    settings_by_name: Mapping[str, UserSettings] = field(default_factory=dict)
    groups: Mapping[str, RightsSettings] = field(default_factory=dict)
    subjects: Mapping[str, str] = field(default_factory=dict)
    """The users with a subject in tokens from outside."""
    taken: frozenset[str] = frozenset()
    """The first parts of all names in rights of users and groups."""
    _outside: dict[tuple[str, tuple[str, ...]], Principal] = field(
        default_factory=dict, compare=False, repr=False
    )
    """The principals of tokens from outside that were asked for."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a file. Raises InputError with the user and the wrong key."""
        return cls.of(str(path), *cls.settings(path))

    @staticmethod
    def settings(path: Path) -> UserFile:
        """Returns the settings of each user and group of a file. Raises InputError."""
        tables = checked(str(path), read_toml(path), _FileTables)
        return UserFile(
            {
                name: checked(f"{path}: users.{name}", user, UserSettings)
                for name, user in tables.users.items()
            },
            {
                name: checked(f"{path}: groups.{name}", group, RightsSettings)
                for name, group in tables.groups.items()
            },
        )

    @classmethod
    def of(
        cls,
        source: str,
        users: Mapping[str, UserSettings],
        groups: Mapping[str, RightsSettings] = {},
    ) -> Self:
        """Returns users with these settings; `source` names their file. Raises InputError."""
        if len(users) > USERS_MAX:
            raise InputError(source, f"more than USERS_MAX = {USERS_MAX} users")
        principals: dict[str, Principal] = {}
        records: dict[str, str] = {}
        certificates: dict[str, str] = {}
        subjects: dict[str, str] = {}
        old: dict[str, tuple[str, int | None]] = {}
        for name, user in users.items():
            try:
                check_user_name(name)
                for record in filter(None, (user.token, user.old_token)):
                    record_parts(record)
                principals[name] = user.principal(name, groups)
            except ContradaError as error:
                raise InputError(source, f"users.{name}: {error}") from None
            if user.token:
                records[name] = user.token
            if user.old_token:
                ends = user.old_token_ends
                old[name] = user.old_token, None if ends is None else time_us_of(ends)
            for what, shown, owners in (
                ("certificate", user.certificate, certificates),
                ("subject", user.jwt, subjects),
            ):
                if shown and owners.setdefault(shown, name) != name:
                    reason = f"users.{name}: found the {what} of {owners[shown]!r} again"
                    raise InputError(source, reason)
        for name, group in groups.items():
            if group.jwt:  # Else a wrong template would be found by the first token.
                try:
                    UserSettings(groups=[name]).principal("user", groups)
                except ContradaError as error:
                    raise InputError(source, str(error)) from None
        rights: list[Principal | RightsSettings] = [*principals.values(), *groups.values()]
        listed = [
            name for each in rights for name in (*(each.publishers or ()), *(each.durable or ()))
        ]
        taken = frozenset(each.partition("/")[0] for each in listed)
        return cls(principals, records, certificates, old, users, groups, subjects, taken)

    def old_record(self, name: str) -> str | None:
        """Returns the record of the token that is being replaced; None after its end."""
        record, ends_us = self.old_records.get(name, (None, None))
        return record if ends_us is None or ends_us > wall_clock_us() else None

    def knows(self, name: str, credential: str) -> bool:
        """Returns whether a user may still be identified by a credential; see `Principal`."""
        mine = "", self.records.get(name), self.old_record(name)
        return credential in mine or self.certificates.get(credential) == name

    def of_jwt(self, subject: str, groups: tuple[str, ...]) -> Principal:
        """Returns the user of a token from outside: the one with its subject, or a new one of this
        name. It has its own rights, and those of the groups that the token names.

        Raises InputError for a token of no user and no group, or with the name of another user.
        """
        found = self._outside.get((subject, groups))
        if found is None:
            name, settings = self.settings_of_jwt(subject, groups)
            found = settings.principal(name, self.groups)
            if len(self._outside) >= USERS_MAX:
                del self._outside[next(iter(self._outside))]
            self._outside[subject, groups] = found
        return found

    def settings_of_jwt(self, subject: str, groups: tuple[str, ...]) -> tuple[str, UserSettings]:
        """Returns the name and the settings of the user of a token; see `of_jwt`."""
        joined = [name for name, each in self.groups.items() if each.jwt and each.jwt in groups]
        name = self.subjects.get(subject)
        if name is None and not joined:
            reason = "no user has this subject, and no group a group of the token"
            raise InputError(subject, reason)
        if name is None and subject in self.principals:
            raise InputError(subject, "a user of this name is identified otherwise")
        if name is None and subject in self.taken:
            raise InputError(subject, "others have names of publishers or subscriptions below it")
        settings = UserSettings() if name is None else self.settings_by_name[name]
        name = subject if name is None else name
        check_user_name(name)
        all_groups = [*dict.fromkeys([*settings.groups, *joined])]
        return name, structs.replace(settings, groups=all_groups)

    def of_certificate(self, names: Iterable[str]) -> Principal | None:
        """Returns the user of one of these certificate names; None for no user, or several."""
        found = {self.certificates[name]: name for name in names if name in self.certificates}
        if len(found) != 1:
            return None
        ((user, certificate),) = found.items()
        return replace(self.principals[user], credential=certificate)


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


class Authenticator:
    """Identifies a connection by a token, by a certificate, or as anonymous.

    A token travels unencrypted inside the connection. So it is accepted only over TLS or from this
    machine, and an overheard token that is replayed elsewhere is refused unread.
    """

    def __init__(
        self, users: Users, limits: BrokerLimits = BrokerLimits(), jwt: JwtVerifier | None = None
    ) -> None:
        """`jwt` verifies tokens from outside; without it there are none."""
        self.users = users
        """The users that may connect now; it can be replaced."""
        self.jwt = jwt
        self._checks = [
            TokenCheck(each, waiting_max=limits.token_checks_max, known_max=limits.known_tokens_max)
            for each in (
                lambda name: self.users.records.get(name),
                lambda name: self.users.old_record(name),
            )
        ]

    def identify(
        self, transport: asyncio.BaseTransport, hello: Hello
    ) -> Principal | Awaitable[Principal]:
        """Returns the principal; an awaitable for a token with an older record, or one from outside
        with an unknown key. Both raise FrameError without a user.
        """
        if hello.token:
            if not is_private(transport):
                raise _refusal("a token is taken over TLS (contradas://) or from this machine only")
            if self.jwt is not None and is_jwt(hello.token):
                identity = self.jwt.verify_at_once(hello.token)
                return self._verify_jwt(hello.token) if identity is None else self._enter(identity)
            has_old = self.users.old_record(name_in(hello.token)) is not None
            checks = self._checks[: 1 + has_old]
            are_right = [check.is_right_at_once(hello.token) for check in checks]
            if True not in are_right and None in are_right:
                return self._check_token(hello.token, are_right)
            return self._admit(hello.token, are_right)
        names = [*certificate_names(transport.get_extra_info("peercert") or {})]
        found = self.users.of_certificate(names) if names else None
        if found is None:
            found = self.users.principals.get(ANONYMOUS)
        if found is None:
            shown = (
                f"no user has a certificate of {names[0]!r}"
                if names
                else "the connection has no token"
            )
            raise _refusal(f"{shown}: this broker wants a token, or a certificate, of its users")
        return self._check_expiry(found)

    def current(self, principal: Principal) -> Principal | None:
        """Returns the present rights of a connected principal; None where it may not stay."""
        identity = JwtIdentity.of_credential(principal.credential)
        if identity is not None:
            try:
                return self._enter(identity)
            except FrameError:
                return None
        found = self.users.principals.get(principal.name)
        if found is None or _is_expired(found):
            return None
        is_known = self.users.knows(found.name, principal.credential)
        return replace(found, credential=principal.credential) if is_known else None

    async def _verify_jwt(self, token: str) -> Principal:
        assert self.jwt is not None
        return self._enter(await self.jwt.verify(token))

    def _enter(self, identity: JwtIdentity) -> Principal:
        """Returns the user of a verified token, which ends with it. Raises FrameError."""
        try:
            found = self.users.of_jwt(identity.subject, identity.groups)
        except ContradaError as error:
            raise _refusal(f"the token is valid, but {error}") from None
        ends_us = min(identity.expires_us, found.expires_us or identity.expires_us)
        credential = identity.to_credential()
        return self._check_expiry(replace(found, credential=credential, expires_us=ends_us))

    async def _check_token(self, token: str, are_right: Sequence[bool | None]) -> Principal:
        found = [
            await check.is_right(token) if is_right is None else is_right
            for check, is_right in zip(self._checks, are_right, strict=False)
        ]
        return self._admit(token, found)

    def _admit(self, token: str, are_right: Sequence[bool | None]) -> Principal:
        name = name_in(token)
        if True not in are_right:
            _LOG.info("a token of %(user)r is refused", {"user": name})
            raise _refusal("the token is not, or no longer, that of a user")
        record = self._checks[are_right.index(True)].record_of_name(name)
        found = self._check_expiry(self.users.principals.get(name))
        return replace(found, credential=record or "")

    def _check_expiry(self, principal: Principal | None) -> Principal:
        if principal is None:  # The user was removed during the check.
            raise _refusal("this user was removed")
        if _is_expired(principal):
            raise _refusal(f"the user {principal.name!r} has expired")
        return principal


def is_private(transport: asyncio.BaseTransport) -> bool:
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


USER: Final = "{user}"

TEMPLATES_KEPT_MAX: Final = 256
"""Templates that are known to be good. Beyond it: the least recently used is parsed again."""

_STAND_IN: Final = "271828"
"""A value in place of `{user}`, as long as it: so places in the text are those in the template."""


def fill_templates(filters: bool | str | list[str], user: str) -> bool | str | list[str]:
    """Returns filters of a group for one user: `{user}` becomes the user's name.

        publish = "device = {user} and kind in ('state', {user})"     # a filter: a whole value
        durable = ["{user}", "alarms/{user}"]                         # a name: a part of it

    In a filter, `{user}` is replaced by a text, and only behind `=`, `!=` and in a list: there a
    text is an exact value, whatever characters a name has. Behind other operators a name would be a
    pattern, or the beginning of other names. In a name it is replaced as it is: names of users have
    no `/` and `*`. Raises InputError.
    """
    if isinstance(filters, bool):
        return filters
    if isinstance(filters, str):
        return _fill(filters, user)
    return [_fill(each, user) for each in filters]


def fill_names(names: list[str] | None, user: str) -> list[str] | None:
    """Returns names with `{user}` replaced."""
    return None if names is None else [each.replace(USER, user) for each in names]


def _fill(template: str, user: str) -> str:
    if USER in template:
        _check(template)
    # In hexadecimal: no character of a name is ever read as a part of the filter.
    return template.replace(USER, f'x"{user.encode().hex()}"')


@lru_cache(TEMPLATES_KEPT_MAX)
def _check(template: str) -> None:
    """Raises InputError unless each `{user}` is an exact value."""
    from contrada.model.syntax.filter_builder import exact_values  # lark takes its time

    expected = f"expected {USER} as a value behind =, != or in a list, without quotes or nocase"
    try:
        values = [*exact_values(template.replace(USER, _STAND_IN))]
    except ParseError as error:
        is_user = template.split("\n")[error.line - 1].startswith(USER, error.column - 1)
        reason = expected if is_user else str(error)
        raise InputError("filter", f"{template!r}: {reason}") from None
    exact = {value.start_pos for value in values if value == _STAND_IN}
    if any(found.start() not in exact for found in re.finditer(re.escape(USER), template)):
        raise InputError("filter", f"{template!r}: {expected}")
