"""`Users`: the users of a broker, read from a file: credentials and rights.

    [users.desk]
    token = "scrypt$…"                      # made by `contrada user add`
    publish = "symbol any and price > 0"    # a filter, several in a list, or true for everything

docs/security.md describes all keys. A right that is not listed is not granted. A client without
token or certificate is the user `anonymous`, where there is one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

from msgspec import Struct

from contrada.errors import ContradaError, InputError
from contrada.model import FilterSet
from contrada.model.domains.values import time_us_of
from contrada.net.wire.tokens import record_parts
from contrada.service.security.principals import EVERYTHING, NOTHING, Principal
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
        found = FilterSet(
            [FilterSet(each) for each in ([value] if isinstance(value, str) else value)]
        )
    except ContradaError as error:
        raise InputError(key, str(error)) from None
    for operator in found.unknown():
        raise InputError(key, f"the operator {operator!r} is not known: load its extension")
    return found
