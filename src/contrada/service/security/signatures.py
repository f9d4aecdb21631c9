"""`Signer` and `Verifier`: signatures that prove the publisher and the content of a notification.

The signature is the end of the id, `desk.4f0c….17~KEY~SIGNATURE`. Brokers neither read nor change
ids, so a signed notification is routed, queued and stored like any other. KEY names the public key,
SIGNATURE is Ed25519's over `signed_bytes`: all of the notification but the signature.

A key is valid for names of publishers: a key of `desk` is valid for `desk/rates`, too. The owner of
another key, such as a broker, can neither make nor change a notification that a verifier accepts,
but can omit it or repeat it later: see `Verified`.

Source: PODC 2000 §6 (authentication of publishers and integrity of notifications).
"""

import base64
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast, overload

import msgspec
from msgspec.structs import replace

from contrada.errors import (
    InputError,
    InvalidValueError,
    LimitError,
    NotVerifiedError,
    ServiceError,
)
from contrada.model import Envelope, Filter, FilterSet, Notification
from contrada.model.algebra.notification import keys_in
from contrada.model.rule import Rule
from contrada.service.requests import filters_of, reader_of, residue_of
from contrada.service.security import signing_keys
from contrada.service.security.number_window import NumberWindow
from contrada.service.subjects import Interest, Liftable, Narrowable, Subscribable

if TYPE_CHECKING:  # Loaded where somebody signs or verifies.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

T = TypeVar("T")

SIGNED_PUBLISHER_BYTES_MAX: Final = 112
"""Bytes of the name of a signing publisher in UTF-8: its ids contain the signature, too. Beyond it:
LimitError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierLimits:
    """Limits of a `Verifier` and of its subscriptions."""

    keys_max: int = 65_536
    """Public keys of a verifier. Beyond it: LimitError."""
    sequences_known_max: int = 4_096
    """Number sequences of publishers in which a verified subscription finds repetitions. Beyond it:
    the one without news for longest is forgotten, and its repetitions are not found."""
    repeats_window: int = 16_384
    """Numbers of a sequence that are known singly. Beyond it: an older one is refused, counted."""


# Why a notification is not verified.
UNSIGNED: Final = "unsigned"
UNKNOWN_KEY: Final = "unknown key"
KEY_OF_ANOTHER: Final = "key of another publisher"
CHANGED: Final = "changed since it was signed"
REPEATED: Final = "repeated"
TOO_LATE: Final = "too late to detect a repetition"

_PREFIX: Final = b"contrada notification signature 1\0"
# The last character has but two bits to hold: one signature has one text.
_SIGNED_ID: Final = re.compile(r"((.*)~([\w-]{16}))~([\w-]{85}[AQgw])", re.ASCII | re.DOTALL)
_encode: Final = msgspec.msgpack.Encoder().encode


def signed_bytes(of: Notification, identity: str) -> bytes:
    """The signed bytes: the same for equal notifications, whatever their path.

    `identity` is the id without the signature. Cost: some microseconds, and a pass over the body.
    """
    told = of.envelope
    attributes = [(name, keys_in(values)) for name, values in sorted(of.attributes.items())]
    number = told.publisher, told.sequence, told.time_us
    transmission = told.ttl_us, told.priority, told.delivery
    return _PREFIX + _encode(
        (identity, *number, *transmission, attributes, of.content_type, of.body)
    )


class Signer:
    """The signer of one publisher: `connect(address, publisher=Signer("desk", key))`."""

    # pragma: allowlist nextline secret
    def __init__(self, publisher: str, private_key: "Ed25519PrivateKey") -> None:
        """Raises LimitError, InvalidValueError, MissingRequirementError."""
        signing_keys.check_signing()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if not isinstance(cast(object, private_key), Ed25519PrivateKey):
            kind = type(private_key).__name__  # Not itself: it may be secret all the same.
            raise InvalidValueError(kind, "expected an Ed25519PrivateKey of `cryptography`")
        size = len(publisher.encode(errors="replace"))
        if size > SIGNED_PUBLISHER_BYTES_MAX:
            raise LimitError("SIGNED_PUBLISHER_BYTES_MAX", SIGNED_PUBLISHER_BYTES_MAX, size)
        self.publisher = publisher
        self.public_key = signing_keys.public_text(private_key)
        """The public key that verifies its signatures, as a text."""
        self._sign = private_key.sign
        self._end = "~" + signing_keys.fingerprint_of(signing_keys.raw_public(self.public_key))

    @classmethod
    def of_file(cls, publisher: str, path: Path | str) -> Self:
        """The signer with the private key in a file of PEM. Raises InputError too."""
        return cls(publisher, signing_keys.private_key_in(path))

    def signed(self, notification: Notification) -> Notification:
        """The signed notification; its envelope is complete.

        A notification of another publisher, or a signed one, is returned unchanged. Raises
        InvalidNotificationError for an id that is too long to be signed. Cost: some 50 µs.
        """
        envelope = notification.envelope
        if envelope.publisher != self.publisher or _SIGNED_ID.fullmatch(envelope.id):
            return notification
        identity = envelope.id + self._end
        signature = self._sign(signed_bytes(notification, identity))
        text = base64.urlsafe_b64encode(signature).decode().rstrip("=")
        return notification.with_envelope(replace(envelope, id=f"{identity}~{text}"))


class Verifier:
    """The public keys of publishers: `Verifier({"desk": public_key})`."""

    def __init__(
        self, keys: Mapping[str, str | Iterable[str]], *, limits: VerifierLimits = VerifierLimits()
    ) -> None:
        """Public keys as texts, one or several of each name.

        A key of `desk` is valid for `desk` and all names below `desk/`. Raises InvalidValueError,
        LimitError, MissingRequirementError.
        """
        signing_keys.check_signing()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        self.limits = limits
        self._keys: dict[str, tuple[Ed25519PublicKey, set[str]]] = {}
        for name, texts in keys.items():
            for text in (texts,) if isinstance(texts, str) else texts:
                raw = signing_keys.raw_public(text)
                if len(self._keys) >= limits.keys_max:
                    raise LimitError("keys_max", limits.keys_max, len(self._keys) + 1)
                known = self._keys.setdefault(
                    signing_keys.fingerprint_of(raw),
                    (Ed25519PublicKey.from_public_bytes(raw), set()),
                )
                known[1].add(name)

    @classmethod
    def of_file(cls, path: Path | str, *, limits: VerifierLimits = VerifierLimits()) -> Self:
        """The verifier with the keys in a TOML file, see `signing_keys`. Raises InputError too."""
        keys = signing_keys.public_keys_in(path)
        try:
            return cls(keys, limits=limits)
        except InvalidValueError as error:
            raise InputError(str(path), str(error)) from None

    def check(self, notification: Notification) -> str:
        """The id without key and signature, if a key of the publisher has signed all of it.

        Raises NotVerifiedError with the reason. Finds no repetitions. Cost: some 100 µs.
        """
        envelope = notification.envelope
        found = _SIGNED_ID.fullmatch(envelope.id)
        if found is None:
            raise NotVerifiedError(UNSIGNED, envelope.publisher, envelope.id)
        key, names = self._keys.get(found[3], (None, ()))
        if key is None:
            raise NotVerifiedError(UNKNOWN_KEY, envelope.publisher, envelope.id)
        publisher = envelope.publisher
        if not any(publisher == name or publisher.startswith(f"{name}/") for name in names):
            raise NotVerifiedError(KEY_OF_ANOTHER, envelope.publisher, envelope.id)
        from cryptography.exceptions import InvalidSignature

        signature = base64.urlsafe_b64decode(found[4] + "==")
        try:
            key.verify(signature, signed_bytes(notification, found[1]))
        except InvalidSignature:
            raise NotVerifiedError(CHANGED, envelope.publisher, envelope.id) from None
        return found[2]

    @overload
    def only(self, subject: Interest[T]) -> "Verified[T]": ...  # type: ignore[overload-overlap]

    @overload
    def only(self, subject: type[T]) -> "Verified[T]": ...

    @overload
    def only(self, subject: Subscribable) -> "Verified[Notification]": ...

    def only(self, subject: Any) -> Any:
        """A subject that gives only the verified notifications of another subject.

            async with service.subscribe(verifier.only("price < 100")) as quotes:
                async for quote in quotes: ...

        Other notifications are counted as dropped, by reason. Raises as `subscribe`.
        """
        return Verified(subject, self)


class Verified(Generic[T]):
    """A subject of which only verified notifications are read, each once.

    A subscription to it knows the received numbers by publisher and sequence, which one access
    point counts from 1. So it gives nothing twice while a sequence is among the last
    `VerifierLimits.sequences_known_max`. It does not notice missing notifications, nor a sequence
    that is withheld as a whole and sent later: its signed time, `envelope.time_us`, shows that. A
    durable subscription delivers unacknowledged notifications again, so it does not look for
    repetitions.

    Patterns and answers to queries are not verified: call `Verifier.check` with each notification
    of a match.
    """

    def __init__(self, subject: Any, verifier: Verifier) -> None:
        if isinstance(subject, Rule):
            reason = "narrows the verified notifications: give it as `where`"
            raise ServiceError(f"a rule of another dialect {reason}")
        self._subject = subject
        self._filters = filters_of(subject)
        self.residue_holds = residue_of(subject)
        self.from_notification: Callable[[Notification], T] = VerifiedReader(
            verifier, reader_of(subject), Repeats(verifier.limits)
        )

    def to_filters(self) -> Filter | FilterSet:
        """The filters of the subject."""
        return self._filters

    def check_where(self, where: Filter | FilterSet) -> Filter | FilterSet:
        """As that of the subject, whose errors it raises."""
        return self._subject.check_where(where) if isinstance(self._subject, Narrowable) else where

    def lift(self, predicate: Callable[[Any], object]) -> Rule:
        """The rule of a predicate over the subject's objects. Raises ServiceError."""
        if not isinstance(self._subject, Liftable):
            raise ServiceError("a predicate narrows a type of obvents; narrow these by a filter")
        return self._subject.lift(predicate)


class Repeats:
    """The received numbers of each sequence."""

    def __init__(self, limits: VerifierLimits) -> None:
        self._limits = limits
        self._runs: OrderedDict[tuple[str, str], NumberWindow] = OrderedDict()

    def check(self, envelope: Envelope, identity: str) -> None:
        """Adds a verified notification. Raises NotVerifiedError for a possible repetition.

        `identity` is its id without key and signature.
        """
        number = envelope.sequence
        run = envelope.publisher, identity.removesuffix(f".{number}")
        window = self._runs.get(run)
        if window is None:
            window = self._runs[run] = NumberWindow(self._limits.repeats_window)
            if len(self._runs) > self._limits.sequences_known_max:
                self._runs.popitem(last=False)
        else:
            self._runs.move_to_end(run)
        if window.is_replay(number):
            reason = TOO_LATE if window.is_past(number) else REPEATED
            raise NotVerifiedError(reason, envelope.publisher, envelope.id)
        window.take(number)


@dataclass(frozen=True)
class VerifiedReader:
    """The function that verifies a notification, and refuses repetitions if `repeats` is given."""

    verifier: Verifier
    read: Callable[[Notification], Any] | None
    repeats: Repeats | None = field(compare=False)

    def __call__(self, notification: Notification) -> Any:
        """The subscriber's object. Raises NotVerifiedError."""
        identity = self.verifier.check(notification)
        if self.repeats is not None:
            self.repeats.check(notification.envelope, identity)
        return notification if self.read is None else self.read(notification)


def durable_reader_of_subject(subject: Any) -> Callable[[Notification], Any] | None:
    """As `reader_of`, for a subscription that delivers unacknowledged notifications again."""
    reader = reader_of(subject)
    if isinstance(reader, VerifiedReader):
        return VerifiedReader(reader.verifier, reader.read, None)
    return reader
