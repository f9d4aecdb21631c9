"""What `contrada serve` is told, by flags, by a file, or by a file for a whole network.

    general = true                 # of a network: what its brokers have in common,

    [brokers.oslo]                 # and what each has of its own
    port = 7701

    [brokers.riga]
    port = 7702
    neighbours = ["oslo", { to = "contrada://10.0.0.7:7655", cost = 3 }]

A file without `brokers` is of one broker. Flags given beside a file win. Paths are relative to the
file that names them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import quote

from msgspec import Meta, Struct, field, structs

from contrada.errors import AddressError, ContradaError, InputError, ServiceError
from contrada.net.broker.network_settings import LinkSettings, NetworkSettings
from contrada.net.wire.address import PORT_DEFAULT, Address, check_host, is_loopback, parse_address
from contrada.net.wire.tls import Tls
from contrada.service.settings import checked, read_toml
from contrada.service.stores.store_location import check_store

MEMORY: Final = "memory:"
"""The store that is none."""

EVERYWHERE: Final = ("0.0.0.0", "::")
"""Hosts at which a broker listens, and by which no other machine reaches it."""

_PORT_MAX: Final = 65_535

LEVELS: Final = ("warning", "info", "debug")
"""How much is logged; each `-v` is one more."""

_FileSettings: TypeAlias = Mapping[str, Any]


class LogSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How much is logged, and for whom."""

    level: Literal["warning", "info", "debug"] = "warning"
    json: bool = False


class TlsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Files of PEM; see `Tls`."""

    certificate: str | None = None
    key: str | None = None
    authority: str | None = None
    require_certificate: bool = False

    def tls(self) -> Tls | None:
        """The same for a broker; None where nothing is set."""
        if self == TlsSettings():
            return None
        return Tls(self.certificate, self.key, self.authority, self.require_certificate)


class HttpSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP port beside a broker; see docs/http.md."""

    listen: str = ""
    origins: list[str] = field(default_factory=list)
    private_sinks: bool = False

    def place(self) -> tuple[str, int]:
        """Where it listens. Raises AddressError."""
        host, _, port = self.listen.rpartition(":")
        if not (port.isascii() and port.isdigit() and int(port) <= _PORT_MAX):
            raise AddressError(self.listen, "PORT, or HOST:PORT, for the HTTP port")
        host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
        check_host(host)
        return host, int(port)


class BrokerSettings(NetworkSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All that a broker is told. See `contrada serve --help`."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = PORT_DEFAULT
    store: str | None = None
    extensions: list[str] = field(default_factory=list)
    log: LogSettings = LogSettings()
    tls: TlsSettings = TlsSettings()
    users: str | None = None
    anyone: bool = False
    token_file: str | None = None
    http: HttpSettings = HttpSettings()

    @property
    def address(self) -> Address:
        """Where others find it."""
        return Address(self.host, self.port, self.tls.certificate is not None)

    def place(self) -> str | None:
        """Where it keeps what is durable or certified; None for nowhere."""
        if self.store is None:
            return f"contrada-{quote(self.name, safe='')}.db" if self.name else "contrada.db"
        return None if self.store == MEMORY else self.store

    def sinks_file(self) -> Path | None:
        """What keeps subscriptions to sinks: a file beside the store; None where there is none."""
        place = self.place()
        if place is None:
            return None
        beside = quote(self.name or "contrada", safe="") if "://" in place else place
        return Path(f"{beside}.sinks.json")


def settings_of(path: Path | None, flags: _FileSettings) -> BrokerSettings:
    """What a broker is told by a file, where there is one, and by flags, which win.

    Raises InputError, AddressError, ServiceError.
    """
    if path is None:
        told = checked("flags", flags, BrokerSettings)
        _check_reach(told)
        return told
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
    """All brokers that a file describes, by name. Raises InputError."""
    _, brokers = _read(path)
    if not brokers:
        raise InputError(str(path), "expected a table of its own for each broker: [brokers.NAME]")
    return {
        name: _resolved(f"{path}: brokers.{name}", each, brokers) for name, each in brokers.items()
    }


def _read(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The settings of a file for all brokers, and for each broker its own settings."""
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
    for each in (common, *brokers.values()):
        store = each.get("store")
        if isinstance(store, str) and store != MEMORY and "://" not in store:
            each["store"] = str(path.parent / store)
        for key in ("users", "token_file"):
            if isinstance(each.get(key), str):
                each[key] = str(path.parent / each[key])
        tls = each.get("tls")
        if isinstance(tls, dict):
            each["tls"] = {
                key: str(path.parent / value) if isinstance(value, str) else value
                for key, value in tls.items()
            }
    return common, brokers


def _check_reach(settings: BrokerSettings) -> None:
    """Raises AddressError, and ServiceError where other machines reach a broker without users."""
    check_host(settings.host)
    hosts = [settings.host]
    if settings.http.listen:
        hosts.append(settings.http.place()[0])
    host = next((each for each in hosts if not is_loopback(each)), None)
    if host is None or settings.anyone:
        return
    if settings.users is None and not settings.tls.require_certificate:
        raise ServiceError(
            f"at {host} others than this machine reach it, and it asks nobody who he is: "
            "add --users FILE (see contrada user), or --anyone"
        )


def _joined(below: _FileSettings, above: _FileSettings) -> dict[str, Any]:
    """Both; what is above wins, in tables key by key."""
    joined = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            joined[key] = _joined(below[key], above[key])
    return joined


def _resolved(
    source: str, given: _FileSettings, brokers: Mapping[str, _FileSettings]
) -> BrokerSettings:
    """What was given, with the addresses of the neighbours that it names."""
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
        if address in links:  # Each of two links would take the place of the other, for ever.
            raise InputError(source, f"{key}: found {link.to!r} again, expected one link to each")
        links[address] = structs.replace(link, to=address)
    resolved = structs.replace(found, neighbours=list(links.values()), parent=None)
    try:  # What no broker can be made of is found out before one is.
        _check_reach(resolved)
        resolved.tls.tls()
        resolved.membership()
        check_store(resolved.place())
    except ContradaError as error:
        raise InputError(source, str(error)) from None
    return resolved
