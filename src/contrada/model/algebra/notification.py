"""Notifications: attributes, an envelope, and an opaque body.

An attribute has one value, or a finite set of values; it matches a constraint when one of them
does. An empty set of values is the same as no attribute. Names that begin with `@` belong to
the system: the envelope's `@id`, `@publisher`, `@time`, and the type marks `@is.NAME`.

Source: PODC 2000 §2 and figure 2.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from contrada.errors import (
    InvalidNameError,
    InvalidNotificationError,
    InvalidValueError,
    LimitError,
)
from contrada.model.algebra.product import ENVELOPE_SETS, Product
from contrada.model.algebra.valueset import ABSENT, ValueSet, of_keys
from contrada.model.domains.values import (
    ABSENT_KEY,
    BOOL,
    INT_MAX,
    TEXT,
    TIME,
    TIME_MAX_US,
    TIME_MIN_US,
    Key,
    Value,
    check_name,
    check_user_name,
    key_of,
    normal,
)

Values: TypeAlias = Value | tuple[Value, ...]
"""One value, or several: distinct, in the order of the line."""

ATTRIBUTES_MAX: Final = 4_096
"""Attributes of a notification. Beyond it: LimitError."""

VALUES_MAX: Final = 4_096
"""Values of one attribute. Beyond it: InvalidNotificationError."""

ENVELOPE_TEXT_BYTES_MAX: Final = 255
"""Bytes, in UTF-8, of an envelope's id, publisher and delivery class, and of a content type.
Beyond it: InvalidNotificationError."""

PRIORITY_DEFAULT: Final = 4

_MARK_PREFIX: Final = "@is."

_ENVELOPE_RANGES: Final = (
    ("sequence", 0, INT_MAX),
    ("time_us", TIME_MIN_US, TIME_MAX_US),
    ("ttl_us", 0, INT_MAX),
    ("priority", 0, 9),
)
_MAY_BE_NONE: Final = ("time_us", "ttl_us")


def _check_text(name: str, text: object) -> None:
    """Refuse what is no text of the envelope."""
    if type(text) is not str:
        raise InvalidNotificationError(name, text, "must be a str")
    if text.isascii() and len(text) <= ENVELOPE_TEXT_BYTES_MAX:
        return
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidNotificationError(name, text, "a lone surrogate is not text") from None
    if size > ENVELOPE_TEXT_BYTES_MAX:
        reason = f"{size} bytes, more than ENVELOPE_TEXT_BYTES_MAX = {ENVELOPE_TEXT_BYTES_MAX}"
        raise InvalidNotificationError(name, text, reason)


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the service says about a notification; filters see it as @id, @publisher, @time.

    `time_us` is when it was published, in UTC microseconds since 1970; `ttl_us` how long it
    may live after that; `priority` 0 (lowest) to 9. An access point fills in what is empty:
    no id, no publisher, no time (None; 0 is the first moment of 1970).

    Source: PODC 2000 §2 (timestamps).
    """

    id: str = ""
    publisher: str = ""
    sequence: int = 0
    time_us: int | None = None
    ttl_us: int | None = None
    priority: int = PRIORITY_DEFAULT
    delivery: str = "best-effort"

    def __post_init__(self) -> None:
        _check_text("@id", self.id)
        _check_text("@publisher", self.publisher)
        _check_text("@delivery", self.delivery)
        for name, low, high in _ENVELOPE_RANGES:
            value = getattr(self, name)
            if value is None and name in _MAY_BE_NONE:
                continue
            if type(value) is not int or not low <= value <= high:
                raise InvalidNotificationError(f"@{name}", value, f"must be {low} to {high}")

    @property
    def at_us(self) -> int:
        """`time_us`, or 0 where it is still empty: what filters and patterns see."""
        return self.time_us or 0


UNSTAMPED: Final = Envelope()


def mark_name(type_name: str) -> str:
    """The attribute that marks a notification as an obvent of a type."""
    return f"{_MARK_PREFIX}{type_name}"


class Notification(Product):
    """An event: a mapping of attribute names to values, an envelope, a body. Immutable.

    `Notification({"symbol": "DIS", "change": -4.0})`; a list, tuple or set gives an attribute
    several values. Raises InvalidNotificationError with the name and the value, and LimitError
    beyond ATTRIBUTES_MAX.

    As a product its named sets are its values, and every other attribute is absent.

    Source: PODC 2000 §2.
    """

    __slots__ = ("_keys", "_values", "body", "content_type", "envelope")

    body: bytes
    content_type: str
    envelope: Envelope
    _values: dict[str, Values]
    _keys: dict[str, tuple[Key, ...]]

    def __init__(
        self,
        attributes: Mapping[str, Value | Iterable[Value]],
        *,
        body: bytes = b"",
        content_type: str = "",
        envelope: Envelope = UNSTAMPED,
    ) -> None:
        self._fill(attributes, body, content_type, envelope, system=False)

    @classmethod
    def marked(
        cls,
        attributes: Mapping[str, Value | Iterable[Value]],
        marks: Iterable[str],
        *,
        body: bytes = b"",
        content_type: str = "",
        envelope: Envelope = UNSTAMPED,
    ) -> "Notification":
        """A notification that also carries type marks, given as the types' names."""
        notification = cls.__new__(cls)
        notification._fill(attributes, body, content_type, envelope, system=False, marks=marks)
        return notification

    @classmethod
    def restored(
        cls,
        attributes: Mapping[str, Value | Iterable[Value]],
        body: bytes,
        content_type: str,
        envelope: Envelope,
    ) -> "Notification":
        """A notification as it came from elsewhere: type marks are allowed."""
        notification = cls.__new__(cls)
        notification._fill(attributes, body, content_type, envelope, system=True)
        return notification

    def _fill(
        self,
        attributes: Mapping[str, Value | Iterable[Value]],
        body: bytes,
        content_type: str,
        envelope: Envelope,
        *,
        system: bool,
        marks: Iterable[str] = (),
    ) -> None:
        if len(attributes) > ATTRIBUTES_MAX:
            raise LimitError("ATTRIBUTES_MAX", ATTRIBUTES_MAX, len(attributes))
        if not isinstance(body, bytes):
            raise InvalidNotificationError("@body", body, "the body is bytes")
        _check_text("@content_type", content_type)
        values: dict[str, Values] = {}
        keys: dict[str, tuple[Key, ...]] = {}
        for name, value in attributes.items():
            _check_attribute_name(name, value, system=system)
            held = _held(name, value)
            if held is not None:
                values[name], keys[name] = held
        for mark in map(mark_name, marks):
            _check_attribute_name(mark, True, system=True)
            values[mark], keys[mark] = True, _MARKED
        set_ = object.__setattr__
        set_(self, "_values", values)
        set_(self, "_keys", keys)
        set_(self, "body", body)
        set_(self, "content_type", content_type)
        set_(self, "envelope", envelope)

    def with_envelope(self, envelope: Envelope) -> "Notification":
        """The same notification in another envelope. Shares the attributes."""
        notification = Notification.__new__(Notification)
        set_ = object.__setattr__
        set_(notification, "_values", self._values)
        set_(notification, "_keys", self._keys)
        set_(notification, "body", self.body)
        set_(notification, "content_type", self.content_type)
        set_(notification, "envelope", envelope)
        return notification

    @property
    def attributes(self) -> Mapping[str, Values]:
        """The attributes, read only; several values are a tuple."""
        return MappingProxyType(self._values)

    @property
    def raw(self) -> dict[str, Values]:
        """The attributes as the dictionary that holds them, for encoders. Not to be changed."""
        return self._values

    def keys_of(self, name: str) -> tuple[Key, ...]:
        """The keys of an attribute's values; of the envelope too; absent is a key."""
        keys = self._keys.get(name)
        if keys is not None:
            return keys
        if name[:1] == "@":
            if name == "@id":
                return ((TEXT, self.envelope.id.encode()),)
            if name == "@publisher":
                return ((TEXT, self.envelope.publisher.encode()),)
            if name == "@time":
                return ((TIME, self.envelope.at_us),)
        return (ABSENT_KEY,)

    @property
    def sets(self) -> Mapping[str, ValueSet]:
        """The named sets, the envelope's among them."""
        names = (*self._keys, *ENVELOPE_SETS)
        return {name: of_keys(self.keys_of(name)) for name in names}

    @property
    def default(self) -> ValueSet:
        """Every other attribute is absent."""
        return ABSENT

    def __getitem__(self, name: str) -> Values:
        return self._values[name]

    def get(self, name: str, default: Values = None) -> Values:
        """The attribute's value or values, or the default where it is absent."""
        return self._values.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Notification):
            return NotImplemented
        return (
            self._keys == other._keys
            and self.envelope == other.envelope
            and self.body == other.body
            and self.content_type == other.content_type
        )

    def __hash__(self) -> int:
        return hash((frozenset(self._keys.items()), self.envelope, self.body, self.content_type))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Notification cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        state = (self._values, self.body, self.content_type, self.envelope)
        return (Notification.restored, state)

    def __repr__(self) -> str:
        return f"Notification({self._values!r})"


_MARKED: Final[tuple[Key, ...]] = ((BOOL, True),)
"""The keys of a type mark."""


def _check_attribute_name(name: object, value: object, *, system: bool) -> None:
    is_mark = isinstance(name, str) and name.startswith(_MARK_PREFIX) and name != _MARK_PREFIX
    try:
        if system and is_mark:
            check_name(name)
        else:
            check_user_name(name)
    except InvalidNameError as error:
        raise InvalidNotificationError(name, value, error.reason) from None


def _held(name: str, value: object) -> tuple[Values, tuple[Key, ...]] | None:
    """The values and their keys; None for an empty collection, which is absent."""
    try:
        if not isinstance(value, list | tuple | set | frozenset):
            plain = normal(value)  # type: ignore[arg-type]
            return plain, (key_of(plain),)
        if len(value) > VALUES_MAX:
            reason = f"{len(value)} values, more than VALUES_MAX = {VALUES_MAX}"
            raise InvalidNotificationError(name, value, reason)
        by_key = {key_of(each): each for each in map(normal, value)}
    except InvalidValueError as error:
        raise InvalidNotificationError(name, value, error.reason) from None
    if not by_key:
        return None
    ordered = tuple(sorted(by_key))
    if len(ordered) == 1:
        return by_key[ordered[0]], ordered
    return tuple(by_key[key] for key in ordered), ordered
