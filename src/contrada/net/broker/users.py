"""The file of users: who may connect to a broker, how each shows who it is, and its rights.

    [users.desk]
    token = "scrypt$…"                      # made by `contrada user add`
    certificate = "desk.example"            # or this host in a certificate of the authority; uri:…
    publish = "symbol any and price > 0"    # a filter, several in a list, or true for everything
    subscribe = ["symbol prefix 'D'", "what = 'alert'"]
    publishers = ["desk"]                   # names it publishes under; its own if nothing is said
    durable = ["desk"]                      # names of durable subscriptions; likewise
    narrow = true                           # a wider wish becomes what lies in both; else: refused
    link = true                             # a broker that may be a neighbour
    inspect = true                          # it may see what a broker holds and did
    expires = 2027-01-01T00:00:00Z

A right that is not listed is not granted. A client without token or certificate is the user
`anonymous`, where there is one.
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
from contrada.net.wire.tokens import check_record
from contrada.service.security.principals import EVERYTHING, NOTHING, Principal
from contrada.service.settings import checked, read_toml

USERS_MAX: Final = 10_000
"""Users of a broker. Beyond it: InputError, and those before stay."""

USER_NAME_CHARS_MAX: Final = 100
"""Characters of a user's name. Beyond it: InputError."""

ANONYMOUS: Final = "anonymous"
"""The user that one is who shows neither token nor certificate."""


class UserSettings(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the file says of one user."""

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
        """The principal of this name. Raises ContradaError that says which key is wrong."""
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
    """The users of a file as it was when it was read."""

    principals: Mapping[str, Principal] = field(default_factory=dict)
    records: Mapping[str, str] = field(default_factory=dict)
    certificates: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises InputError, which names the user and the key that is wrong."""
        return cls.of(str(path), cls.settings(path))

    @staticmethod
    def settings(path: Path) -> dict[str, UserSettings]:
        """The settings of each user, as they stand in a file. Raises InputError."""
        users = checked(str(path), read_toml(path), _UserFile).users
        return {
            name: checked(f"{path}: users.{name}", said, UserSettings)
            for name, said in users.items()
        }

    @classmethod
    def of(cls, source: str, users: Mapping[str, UserSettings]) -> Self:
        """Of what is said of each user; `source` says where it stands. Raises InputError."""
        if len(users) > USERS_MAX:
            raise InputError(source, f"more than USERS_MAX = {USERS_MAX} users")
        principals: dict[str, Principal] = {}
        records: dict[str, str] = {}
        certificates: dict[str, str] = {}
        for name, said in users.items():
            try:
                check_user_name(name)
                if said.token:
                    check_record(said.token)
                principals[name] = said.principal(name)
            except ContradaError as error:
                raise InputError(source, f"users.{name}: {error}") from None
            if said.token:
                records[name] = said.token
            if said.certificate:
                other = certificates.setdefault(said.certificate, name)
                if other != name:
                    reason = f"users.{name}: found the certificate of {other!r} again"
                    raise InputError(source, reason)
        return cls(principals, records, certificates)

    def changed(self, others: "Users") -> set[str]:
        """The users who show themselves otherwise in the others, or not at all."""
        mine, theirs = self._shown(), others._shown()
        return {name for name in mine if mine[name] != theirs.get(name)}

    def _shown(self) -> dict[str, tuple[str | None, str | None]]:
        certificates = {name: certificate for certificate, name in self.certificates.items()}
        return {name: (self.records.get(name), certificates.get(name)) for name in self.principals}

    def of_certificate(self, names: Iterable[str]) -> Principal | None:
        """Whose certificate has one of these names; None where it is nobody's, or several's."""
        found = {self.certificates[name] for name in names if name in self.certificates}
        return self.principals[found.pop()] if len(found) == 1 else None


def check_user_name(name: str) -> None:
    """Raises InputError for what is no name of a user."""
    is_fit = name.isprintable() and not set(name) & set("/* ")
    if not name or len(name) > USER_NAME_CHARS_MAX or not is_fit:
        expected = f"1 to {USER_NAME_CHARS_MAX} printable characters without blank, '/' and '*'"
        raise InputError("name", f"found {name!r}, expected {expected}")


def _filters(key: str, said: bool | str | list[str]) -> FilterSet:
    if isinstance(said, bool):
        return EVERYTHING if said else NOTHING
    try:
        found = FilterSet([FilterSet(each) for each in ([said] if isinstance(said, str) else said)])
    except ContradaError as error:
        raise InputError(key, str(error)) from None
    for operator in found.unknown():
        raise InputError(key, f"the operator {operator!r} is not known: load its extension")
    return found
