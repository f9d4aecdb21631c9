"""`BrokerSettings`: the settings of `contrada serve`, from flags, a file, or a network file.

A file without `brokers` describes one broker; `contrada network --help` shows one of several. Flags
override the file. Paths are relative to their file.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import quote

from msgspec import Meta, Struct, field, structs

from contrada.errors import AddressError, ContradaError, InputError, ServiceError
from contrada.limits import Limits, read_limits
from contrada.net.broker.jwt_verifier import JwtSettings
from contrada.net.broker.neighbours import LinkSettings, NetworkSettings
from contrada.net.wire.address import PORT_DEFAULT, Address, check_host, is_loopback, parse_address
from contrada.net.wire.tls import Tls
from contrada.service.settings import checked, read_toml
from contrada.service.stores.store_location import check_store, is_url

MEMORY: Final = "memory:"  # The value of `store` that keeps nothing on disk

EVERYWHERE: Final = ("0.0.0.0", "::")
"""Hosts that no other machine can reach."""

_PORT_MAX: Final = 65_535
_PATHS: Final = ("store", "users", "token_file", "audit_log")

LEVELS: Final = ("warning", "info", "debug")
"""Log levels; each `-v` selects the next one."""

_FileSettings: TypeAlias = Mapping[str, Any]


class LogSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Level and form of the log."""

    level: Literal["warning", "info", "debug"] = "warning"
    json: bool = False


class TlsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """PEM files; see `Tls`."""

    certificate: str | None = None
    key: str | None = None
    authority: str | None = None
    require_certificate: bool = False
    crl: str | None = None

    def tls(self) -> Tls | None:
        """Returns the TLS configuration of a broker, or None where nothing is set."""
        if self == TlsSettings():
            return None
        return Tls(*structs.astuple(self))


class HttpSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP port of a broker; see docs/http.md."""

    listen: str = ""
    origins: list[str] = field(default_factory=list)
    sinks: list[str] = field(default_factory=lambda: ["public"])
    unasked_sinks: list[str] = field(default_factory=list)
    webhook_origin: str = "contrada"
    brokers: list[str] = field(default_factory=lambda: ["127.0.0.0/8", "::1"])

    def place(self) -> tuple[str, int]:
        """Returns host and port. Raises AddressError."""
        host, _, port = self.listen.rpartition(":")
        if not (port.isascii() and port.isdigit() and int(port) <= _PORT_MAX):
            raise AddressError(self.listen, "PORT, or HOST:PORT, for the HTTP port")
        host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
        check_host(host)
        return host, int(port)


class BrokerSettings(NetworkSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of a broker. See `contrada serve --help`."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = PORT_DEFAULT
    store: str | None = None
    standby: bool = False
    extensions: list[str] = field(default_factory=list)
    log: LogSettings = LogSettings()
    tls: TlsSettings = TlsSettings()
    users: str | None = None
    jwt: JwtSettings | None = None
    audit_log: str | None = None
    anyone: bool = False
    token_file: str | None = None
    http: HttpSettings = HttpSettings()
    limits: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> Address:
        """The address of this broker for clients and neighbours."""
        return Address(self.host, self.port, self.tls.certificate is not None)

    def all_limits(self) -> Limits:
        """Returns the table `limits`, overridden by the environment. Raises InputError."""
        return read_limits(self.limits, os.environ)

    def place(self) -> str | None:
        """The location of the store; None for none."""
        if self.store is None:
            return f"contrada-{quote(self.name, safe='')}.db" if self.name else "contrada.db"
        return None if self.store == MEMORY else self.store

    def sinks_file(self) -> Path | None:
        """The file of subscriptions to sinks, beside the store; None without a store."""
        place = self.place()
        if place is None:
            return None
        beside = quote(self.name or "contrada", safe="") if "://" in place else place
        return Path(f"{beside}.sinks.json")


def settings_of(path: Path | None, flags: _FileSettings) -> BrokerSettings:
    """Returns the settings, overridden by flags. Raises InputError, AddressError, ServiceError."""
    if path is None:
        settings = checked("flags", flags, BrokerSettings)
        _check(settings)
        return settings
    common, brokers = _read(path)
    if not brokers:
        return _resolved(str(path), _joined(common, flags), {})
    name = flags.get("name", "")
    if name not in brokers:
        found = f"--name {name}" if name else "no --name"
        reason = f"found {found}, expected one of its brokers: {', '.join(brokers)}"
        raise InputError(str(path), reason)
    return _resolved(f"{path}: brokers.{name}", _joined(brokers[name], flags), brokers)


def settings_of_network(path: Path) -> dict[str, BrokerSettings]:
    """Returns the settings of all brokers of a file, by name. Raises InputError."""
    _, brokers = _read(path)
    if not brokers:
        raise InputError(str(path), "expected a table of its own for each broker: [brokers.NAME]")
    return {
        name: _resolved(f"{path}: brokers.{name}", each, brokers) for name, each in brokers.items()
    }


def _read(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Returns the common settings of a file, and those of each broker."""
    common = read_toml(path)
    described = common.pop("brokers", {})
    brokers = {}
    for name, own in described.items() if isinstance(described, dict) else [("", described)]:
        place = f"brokers.{name}".rstrip(".")
        if not isinstance(own, dict):
            raise InputError(str(path), f"{place}: found {own!r}, expected table")
        if "name" in own or "name" in common:
            raise InputError(str(path), f"{place}: found the key name, but {name!r} is its name")
        brokers[name] = _joined(common, {**own, "name": name})

    def beside(given: Any) -> Any:
        is_path = isinstance(given, str) and given != MEMORY and "://" not in given
        return str(path.parent / given) if is_path else given

    for each in (common, *brokers.values()):
        each.update({key: beside(each[key]) for key in _PATHS if key in each})
        if isinstance(tls := each.get("tls"), dict):
            each["tls"] = {key: beside(value) for key, value in tls.items()}
        if isinstance(jwt := each.get("jwt"), dict) and jwt.get("keys"):
            each["jwt"] = {**jwt, "keys": beside(jwt["keys"])}
    return common, brokers


def _check(settings: BrokerSettings) -> None:
    """Raises AddressError, or ServiceError for a reachable broker without users, or a standby
    without a database.
    """
    check_host(settings.host)
    hosts = [settings.host]
    if settings.http.listen:
        hosts.append(settings.http.place()[0])
    host = next((each for each in hosts if not is_loopback(each)), None)
    has_users = settings.users is not None or settings.tls.require_certificate
    if host is not None and not (has_users or settings.anyone):
        raise ServiceError(
            f"at {host} other machines reach it, and it authenticates nobody: "
            "add --users FILE (see contrada user), or --anyone"
        )
    if settings.standby and not is_url(settings.place() or ""):
        raise ServiceError(
            "a standby shares its store with the broker that leads: "
            "add --store postgresql://user@host/database"
        )


def _joined(below: _FileSettings, above: _FileSettings) -> dict[str, Any]:
    """Merges two mappings key by key, tables too; `above` wins."""
    joined = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            joined[key] = _joined(below[key], above[key])
    return joined


def _resolved(
    source: str, given: _FileSettings, brokers: Mapping[str, _FileSettings]
) -> BrokerSettings:
    found = checked(source, given, BrokerSettings)
    links: dict[str, LinkSettings] = {}
    for key, link in found.links():
        if link.to in brokers:
            to = checked(f"{source}: {link.to}", brokers[link.to], BrokerSettings)
            if to.port == 0 or link.to == found.name:
                what = "itself" if link.to == found.name else f"{link.to!r}, which has no port"
                raise InputError(source, f"{key}: found {what}, expected another broker with one")
            if to.host in EVERYWHERE:
                reason = f"{link.to!r} listens at {to.host}, expected its address, contrada://HOST"
                raise InputError(source, f"{key}: {reason}:{to.port}")
            address = str(to.address)
        else:
            try:
                address = str(parse_address(link.to))
            except AddressError as error:
                others = f", or one of: {', '.join(brokers)}" if brokers else ""
                raise InputError(source, f"{key}: {error}{others}") from None
        if address in links:  # Two links to one address would replace each other forever.
            raise InputError(source, f"{key}: found {link.to!r} again, expected one link to each")
        links[address] = structs.replace(link, to=address)
    resolved = structs.replace(found, neighbours=list(links.values()), parent=None)
    try:  # Checks the settings before a broker is created.
        _check(resolved)
        resolved.tls.tls()
        if resolved.jwt is not None:
            resolved.jwt.check()
        resolved.membership()
        resolved.all_limits()
        check_store(resolved.place())
    except ContradaError as error:
        raise InputError(source, str(error)) from None
    return resolved
