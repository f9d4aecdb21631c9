"""`BridgePeer`: the side of a bridge in another messaging system, one class for each kind.

A peer has one connection, which does not repair itself: any call that finds it lost raises
`PeerLostError`, and the bridge opens another. So all kinds recover by the same rule: received
records that were not acknowledged are received again, sent ones that were not confirmed are sent
again.
"""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from contrada.errors import AddressError, ConnectionFailedError, ContradaError, PeerLostError
from contrada.integrations.bridges.record_translation import PeerRecord, TextTemplate
from contrada.net.wire.address import check_host
from contrada.net.wire.endpoint import describe_os_error
from contrada.net.wire.tls import Tls

T = TypeVar("T")

RETRY_S_MAX: Final = 60.0
"""Seconds between two attempts to send a notification. Beyond it: the waits do not grow."""

NO_SERVER: Final = "connection refused: no server listens there"
"""The reason of a refused connection."""

_PASSWORD: Final = re.compile(r"\A((?:[^:@]*://)?[^:@]*):.*@", re.DOTALL)
"""The begin of an address with a password, which ends at the last `@`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeLimits:
    """Limits of a `Bridge` and its `BridgePeer`."""

    bridge_batch_max: int = 256
    """Records received, or sent, together. Beyond it: the next batch has the rest."""
    bridge_batch_bytes_max: int = 32 * 2**20
    """Bytes of records sent together. Beyond it: the next batch has the rest."""
    bridge_queued_max: int = 512
    """Received records that are not acknowledged, where the other system lets a client bound them.
    Beyond it: the other system waits."""
    bridge_wait_s: float = 10.0
    """Seconds for opening and closing a connection, and for confirmations. Beyond it: the
    connection is lost; what was sent alone gets twice as long on the next one."""
    bridge_retry_s: float = 1.0
    """Seconds before a notification without a place, or a refused one with dead letters, is sent
    again. Beyond it: each wait is twice as long, at most `RETRY_S_MAX`."""


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """The address of another system, and the user and password of this side."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    is_tls: bool = False
    user: str = ""
    password: str = field(default="", repr=False)
    path: str = ""

    def __str__(self) -> str:
        hosts = ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts
        )
        return f"{self.scheme}://{hosts}{f'/{self.path}' if self.path else ''}"


def without_password(text: str) -> str:
    """Returns an address for errors, also a malformed one: a password may contain `/`."""
    return _PASSWORD.sub(r"\1:…@", text)


@dataclass(frozen=True, slots=True)
class AddressForm:
    """The addresses of a kind: `schemes` are those without and with TLS, and `port` the default of
    each.
    """

    schemes: tuple[str, str]
    ports: tuple[int, int]
    is_cluster: bool = False
    has_path: bool = False

    @property
    def expected(self) -> str:
        """The expected form, for errors."""
        plain, secure = self.schemes
        several = "[,HOST…]" if self.is_cluster else ""
        path = "[/NAME]" if self.has_path else ""
        return f"{plain}://[USER@]HOST[:PORT]{several}{path} or {secure}://…, without a password"

    def parse(self, text: str, password: str = "") -> PeerAddress:
        """Parses an address. Raises AddressError."""
        scheme, _, rest = text.partition("://")
        place, _, path = rest.partition("/")
        who, _, places = place.rpartition("@")
        user, has_password, _ = who.partition(":")
        shown = without_password(text)
        if has_password:
            raise AddressError(shown, f"{self.expected}: others could read it")
        names = places.split(",")
        good = scheme in self.schemes and text.isprintable() and not set(places + path) & set("?#")
        if not good or (len(names) > 1 and not self.is_cluster) or (path and not self.has_path):
            raise AddressError(shown, self.expected)
        is_tls = scheme == self.schemes[1]
        hosts = tuple(self._host(each, shown, self.ports[is_tls]) for each in names)
        return PeerAddress(scheme, hosts, is_tls, unquote(user), password, unquote(path))

    def _host(self, name: str, shown: str, port: int) -> tuple[str, int]:
        try:
            parts = urlsplit(f"//{name}")
            host, given = parts.hostname, parts.port
        except ValueError:
            raise AddressError(shown, self.expected) from None
        if not host or given == 0:
            raise AddressError(shown, self.expected)
        check_host(host)
        return host, given or port


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """What each peer is made of: `name` identifies this bridge at the other system. `exchange` is
    that of outgoing messages of AMQP, `mechanism` that of SASL in Kafka, `retain` the flag of
    outgoing messages of MQTT. An address with TLS has `tls`: by default, that of the system.
    """

    address: PeerAddress
    name: str
    sources: Sequence[str] = ()
    tls: Tls | None = None
    limits: BridgeLimits = BridgeLimits()
    exchange: str = ""
    mechanism: str = "PLAIN"
    retain: bool = False

    def __post_init__(self) -> None:
        if self.address.is_tls and self.tls is None:  # Else the password would be in plain text.
            object.__setattr__(self, "tls", Tls())


class BridgePeer(ABC):
    """The connection of a bridge to another system, open or not. All methods but `aclose` may raise
    PeerLostError. `dropped` counts records that exceeded the queue, of systems that do not wait.
    """

    has_fields = False
    """Whether records are maps of fields, without a payload."""
    template = TextTemplate
    """The class of the topics of outgoing records."""
    patience = 1.0
    """Factor of `bridge_wait_s`, for a record that took longer."""
    always_receives = False
    """Whether `receive` is needed without sources, too: it reports the end of a session."""

    def __init__(self, settings: PeerSettings) -> None:
        self.settings = settings
        self.dropped = 0

    @abstractmethod
    async def open(self) -> None:
        """Connects, and subscribes to the sources. Raises ConnectionFailedError."""

    @abstractmethod
    async def receive(self) -> Sequence[PeerRecord]:
        """Returns the next records in order, at least one. What the other system repeats after a
        lost connection is returned again. Raises ConnectionFailedError, for good.
        """

    def wants(self, record: PeerRecord) -> bool:
        """Whether a received record is of a source, and not of one that an earlier run had."""
        return True

    @abstractmethod
    async def acknowledge(self, records: Sequence[PeerRecord]) -> None:
        """Acknowledges received records, in order."""

    @abstractmethod
    async def send(self, records: Sequence[PeerRecord]) -> Sequence[ContradaError | None]:
        """Sends records, in order; returns when the other system has each, or has refused it: then
        the error tells why. `NoPlaceError` is no fault of the record: it may be sent again.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Closes the connection. Idempotent."""

    @property
    def _wait_s(self) -> float:
        return self.settings.limits.bridge_wait_s * self.patience

    async def _in_time(self, work: Awaitable[T], wait_s: float | None = None) -> T:
        """Waits for work. Raises PeerLostError after `bridge_wait_s`, or as given; or for an
        OSError.
        """
        wait_s = self.settings.limits.bridge_wait_s if wait_s is None else wait_s
        try:
            async with asyncio.timeout(wait_s):
                return await work
        except TimeoutError:
            raise self._loss(f"no answer within {wait_s:g} s") from None
        except OSError as error:
            raise self._loss(reason_of(error)) from None

    def _failed(self, reason: str) -> ConnectionFailedError:
        return ConnectionFailedError(str(self.settings.address), reason)

    def _loss(self, reason: object) -> PeerLostError:
        return PeerLostError(str(self.settings.address), str(reason) or type(reason).__name__)


def reason_of(error: OSError) -> str:
    """Returns the reason of a failed connection as a sentence."""
    if isinstance(error, ConnectionRefusedError):
        return NO_SERVER
    return describe_os_error(error).partition("; --tls")[0]  # That is advice for our brokers.
