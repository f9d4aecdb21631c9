"""`Notification`: attributes, an envelope and an opaque body.

An attribute has one value, or a finite set of values; it matches a constraint when one of them
does. An empty set of values is the same as no attribute. The system owns some names: `@id`,
`@publisher` and `@time` of the envelope, and the type marks, `@is.NAME`.

A notification holds its attributes as bytes: one map of msgpack, its *span*, which is checked once,
on creation, and decoded at the first access. The index matches the span itself, and brokers forward
it unchanged, so nothing is packed or parsed twice between publisher and subscriber.

Source: PODC 2000 §2 and figure 2.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from contrada.errors import AttributeValueError, InvalidNotificationError
from contrada.model.algebra import notation
from contrada.model.algebra.attributes import (
    ATTRIBUTES_KEPT_MAX,
    Values,
    check_attribute_name,
    decode_map,
    good_names,
    good_names_and_marks,
    normalize_values,
    plain_span,
    plain_values_span,
    span_of_any,
    values_in,
)
from contrada.model.algebra.html_display import html_table
from contrada.model.algebra.nested_objects import JSON_TYPE, MAPPING, as_json, flatten_mapping
from contrada.model.algebra.product import ENVELOPE_SETS, ENVELOPE_TEXT_BYTES_MAX, Product
from contrada.model.algebra.value_set import ABSENT, ValueSet, of_keys
from contrada.model.domains import line
from contrada.model.domains.values import (
    ABSENT_KEY,
    INT_MAX,
    MARK_PREFIX,
    TEXT,
    TIME,
    TIME_MAX_US,
    TIME_MIN_US,
    Key,
    Value,
    key_of,
)
from contrada.model.native import NATIVE

Body: TypeAlias = bytes | Mapping[str, Any]
"""Opaque bytes, or a mapping that is encoded as JSON."""

PRIORITY_DEFAULT: Final = 4
_PARTS: Final = frozenset(("span", "body", "content_type", "envelope"))
# A Notification refuses to be changed; only this module fills its slots, straight and quickly.
_new: Final = object.__new__
_TEXTS: Final = frozenset((str,))


def check_text(name: str, text: object) -> None:
    """Raises InvalidNotificationError for a value that no text field of an envelope can hold."""
    if type(text) is not str:
        raise InvalidNotificationError(name, text, "must be a str")
    if len(text) <= ENVELOPE_TEXT_BYTES_MAX and text.isascii():
        return
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidNotificationError(name, text, "a lone surrogate is not text") from None
    if size > ENVELOPE_TEXT_BYTES_MAX:
        reason = f"{size} bytes, more than ENVELOPE_TEXT_BYTES_MAX = {ENVELOPE_TEXT_BYTES_MAX}"
        raise InvalidNotificationError(name, text, reason)


def _check_integer(name: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidNotificationError(name, value, f"must be {low} to {high}")


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Metadata of a publication; filters read it as `@id`, `@publisher` and `@time`.

    `time_us` is the time of publication, in UTC microseconds since 1970. `ttl_us` is its lifetime
    from then on, `priority` is 0 (lowest) to 9; both apply to best effort only. On publication the
    service fills in a missing id, publisher or time (None; 0 is the first moment of 1970).

    Source: PODC 2000 §2 (timestamps); EPFL 2503 §5.2.2 (timely and prioritary obvents).
    """

    id: str = ""
    publisher: str = ""
    sequence: int = 0
    time_us: int | None = None
    ttl_us: int | None = None
    priority: int = PRIORITY_DEFAULT
    delivery: str = "best-effort"

    def __post_init__(self) -> None:
        # One test accepts almost all envelopes: every received notification makes one.
        time_us, id_, publisher, delivery = self.time_us, self.id, self.publisher, self.delivery
        if (
            self.ttl_us is None
            and type(time_us) is int
            and TIME_MIN_US <= time_us <= TIME_MAX_US
            and type(self.sequence) is int
            and 0 <= self.sequence <= INT_MAX
            and type(id_) is type(publisher) is type(delivery) is str
            and len(id_) <= ENVELOPE_TEXT_BYTES_MAX >= len(publisher)
            and len(delivery) <= ENVELOPE_TEXT_BYTES_MAX
            and id_.isascii()
            and publisher.isascii()
            and delivery.isascii()
            and self.priority is PRIORITY_DEFAULT
        ):
            return
        self._check()

    def _check(self) -> None:
        check_text("@id", self.id)
        check_text("@publisher", self.publisher)
        check_text("@delivery", self.delivery)
        _check_integer("@sequence", self.sequence, 0, INT_MAX)
        _check_integer("@priority", self.priority, 0, 9)
        if self.time_us is not None:
            _check_integer("@time_us", self.time_us, TIME_MIN_US, TIME_MAX_US)
        if self.ttl_us is not None:
            _check_integer("@ttl_us", self.ttl_us, 0, INT_MAX)

    @property
    def at_us(self) -> int:
        """The time for filters and patterns: `time_us`, or 0 if it is missing."""
        return self.time_us or 0

    @property
    def expires_us(self) -> int | None:
        """The end of the lifetime; None if there is none."""
        if self.ttl_us is None or self.time_us is None or self.delivery != BEST_EFFORT:
            return None
        return self.time_us + self.ttl_us


ENVELOPE_FIELDS: Final = [(it.name, it.type, it.default) for it in msgspec.structs.fields(Envelope)]
"""The fields of an envelope, to define structs of other encodings with."""

BEST_EFFORT: Final = Envelope.__struct_defaults__[-1]
"""The default delivery guarantee."""

UNSTAMPED: Final = Envelope()

OWN: Final = Envelope()
"""Marks a notification that only the service refers to, so that it can be stamped in place."""


def mark_name(type_name: str) -> str:
    """Returns the name of the attribute that marks a notification as an obvent of a type."""
    return f"{MARK_PREFIX}{type_name}"


class Notification(Product, Mapping[str, Values]):
    """An event: a mapping of attribute names to values, an envelope, a body. Immutable.

    `Notification({"symbol": "DIS", "change": -4.0})`. A list, tuple or set gives an attribute
    several values, distinct and sorted. A nested mapping gives names joined by dots. If a part fits
    no attribute, such as a list of objects, the body is the whole mapping as JSON (see
    `nested_objects`). To keep the order and repeats of values, pass the mapping as `body` too.

    Two notifications are equal if their attributes, bodies and content types are equal. Envelopes
    are not compared, so a received notification equals the published one; `is_identical` compares
    them too. As a product its named sets are its values, and every other attribute is absent.

    Raises InvalidNotificationError with the name and the value, and LimitError beyond
    ATTRIBUTES_MAX. Source: PODC 2000 §2.
    """

    __slots__ = ("_keys", "_values", "body", "content_type", "envelope", "packed", "span")

    span: bytes
    """The attributes as one map of msgpack, checked."""

    packed: bytes
    """The encoding, if it was received or made already; else empty. It is forwarded unchanged."""

    body: bytes
    content_type: str
    envelope: Envelope
    _values: dict[str, Values] | Literal[False] | None
    _keys: dict[str, tuple[Key, ...]]

    def __init__(
        self,
        attributes: Mapping[str, Any],
        *,
        body: Body = b"",
        content_type: str = "",
        envelope: Envelope = UNSTAMPED,
    ) -> None:
        span, kept = plain_span(attributes, good_names), None
        if span is None:
            if not isinstance(attributes, Mapping):
                raise InvalidNotificationError(None, attributes, MAPPING)
            flat, is_whole = flatten_mapping(attributes)
            span = span_of_any(flat, system=False)
            if not is_whole:
                if body and body is not attributes:
                    reason = "lists of objects or lists stay in the body, which is given already"
                    raise InvalidNotificationError("@body", body, reason)
                body = attributes  # It holds the parts that fit no attribute.
        elif len(attributes) <= ATTRIBUTES_KEPT_MAX:
            kept = dict(attributes)
        if not isinstance(body, bytes):
            if not isinstance(body, Mapping):
                raise InvalidNotificationError("@body", body, "the body is bytes, or a mapping")
            body, content_type = as_json(body), content_type or JSON_TYPE
        if body or content_type:
            _check_body(body, content_type)
        _set_span(self, span)
        _set_body(self, body)
        _set_content_type(self, content_type)
        _set_envelope(self, envelope)
        _set_packed(self, b"")
        _set_values(self, kept)

    @classmethod
    def with_marks(
        cls,
        attributes: Mapping[str, Value | Iterable[Value]],
        marks: Iterable[str],
        *,
        body: bytes = b"",
        content_type: str = "",
        envelope: Envelope = UNSTAMPED,
    ) -> "Notification":
        """Returns a notification of user attributes and of type marks, given as type names."""
        if not good_names.issuperset(attributes):
            for name, value in attributes.items():
                check_attribute_name(name, value, system=False)
        both = {**attributes, **dict.fromkeys(map(mark_name, marks), True)}
        return cls.from_attributes(both, body, content_type, envelope)

    @classmethod
    def from_attributes(
        cls,
        attributes: Mapping[str, Value | Iterable[Value]],
        body: bytes,
        content_type: str,
        envelope: Envelope,
    ) -> "Notification":
        """Returns a notification of decoded attributes, type marks among them."""
        if body != b"" or content_type:
            _check_body(body, content_type)
        span = plain_span(attributes, good_names_and_marks)
        kept: Any = None
        if span is None:
            span = span_of_any(attributes, system=True)
        elif len(attributes) <= ATTRIBUTES_KEPT_MAX:
            kept = dict(attributes)
        return from_parts(span, body, content_type, envelope, values=kept)

    def with_envelope(self, envelope: Envelope) -> "Notification":
        """Returns the notification with another envelope. Shares the attributes."""
        if self.envelope is OWN:
            _set_envelope(self, envelope)
            return self
        # Values that are not decoded yet are those of an encoding, which the other has not.
        values = _get_values(self) or None
        return from_parts(self.span, self.body, self.content_type, envelope, values=values)

    @classmethod
    def from_json(cls, text: str) -> "Notification":
        """Decodes the output of `to_json`. Raises EncodingError with the reason."""
        return notation.parse_as(cls, text)

    def to_json(self) -> str:
        """Encodes all parts as one line of JSON; identical notifications give identical lines."""
        return notation.text_of(self)

    @property
    def attributes(self) -> Mapping[str, Values]:
        """The attributes, read only; several values are a tuple."""
        return MappingProxyType(self._read())

    def _read(self) -> dict[str, Values]:
        """Returns the values; the first call decodes the span."""
        values = self._values
        if values is None:
            values = values_in(self.span)
            _set_values(self, values)
        elif values is False:  # Each is single, as was checked.
            values = _plain_attributes(self.packed)
            _set_values(self, values)
        return values

    def __getattr__(self, name: str) -> Any:
        """Decodes the parts of a received notification at the first access."""
        if name not in _PARTS:
            raise AttributeError(f"a Notification has no attribute {name!r}")
        _, _, (span, envelope, body, content_type) = _decode_parts(self.packed)
        _set_span(self, bytes(span))
        _set_envelope(self, envelope)
        _set_body(self, body)
        _set_content_type(self, content_type)
        return getattr(self, name)

    def keys_of(self, name: str) -> tuple[Key, ...]:
        """Returns the keys of an attribute or envelope field; that of an absent one is `absent`."""
        try:
            known = self._keys
        except AttributeError:
            known = {}
            _set_keys(self, known)
        keys = known.get(name)
        if keys is not None:
            return keys
        values = self._read()
        if name in values:
            keys = keys_in(values[name])
        elif name == "@id":
            keys = ((TEXT, self.envelope.id.encode()),)
        elif name == "@publisher":
            keys = ((TEXT, self.envelope.publisher.encode()),)
        else:
            keys = ((TIME, self.envelope.at_us) if name == "@time" else ABSENT_KEY,)
        known[name] = keys
        return keys

    @property
    def sets(self) -> Mapping[str, ValueSet]:
        names = (*self._read(), *ENVELOPE_SETS)
        return {name: of_keys(self.keys_of(name)) for name in names}

    @property
    def default(self) -> ValueSet:
        """Every other attribute is absent."""
        return ABSENT

    def __getitem__(self, name: str) -> Values:
        return (self._values or self._read())[name]

    def __contains__(self, name: object) -> bool:
        return name in self._read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def number(self, name: str) -> float:
        """Returns the only value, an int or float. Raises AttributeValueError, as do the others."""
        value = self._read().get(name)
        if type(value) is int or type(value) is float:
            return value
        raise self._unexpected(name, "a number")

    def text(self, name: str) -> str:
        """Returns the text that an attribute has as its only value; bytes must be UTF-8."""
        value = self._read().get(name)
        if type(value) is bytes:
            with contextlib.suppress(UnicodeDecodeError):
                return value.decode()
        if type(value) is str:
            return value
        raise self._unexpected(name, "a text")

    def time(self, name: str) -> datetime:
        """Returns the time that an attribute has as its only value, in UTC."""
        value = self._read().get(name)
        if type(value) is datetime:
            return value
        raise self._unexpected(name, "a time")

    def boolean(self, name: str) -> bool:
        """Returns the truth value that an attribute has as its only value."""
        value = self._read().get(name)
        if type(value) is bool:
            return value
        raise self._unexpected(name, "true or false")

    def _unexpected(self, name: str, expected: str) -> AttributeValueError:
        value = self._read().get(name, ())
        return AttributeValueError(name, value if type(value) is tuple else (value,), expected)

    def is_identical(self, other: "Notification") -> bool:
        """Whether the other equals this one and has an equal envelope."""
        return self == other and self.envelope == other.envelope

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Notification):
            return NotImplemented
        if self.body != other.body or self.content_type != other.content_type:
            return False
        return self.span == other.span or self._content() == other._content()

    def _content(self) -> dict[str, tuple[Key, ...]]:
        return {name: self.keys_of(name) for name in self._read()}

    def __hash__(self) -> int:
        # Many numbers share a hash in Python, and a stranger can choose them; bytes are salted.
        attributes = frozenset((name, line.packed(self.keys_of(name))) for name in self._read())
        return hash((attributes, self.body, self.content_type))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Notification cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return (from_parts, (self.span, self.body, self.content_type, self.envelope))

    def __str__(self) -> str:
        return f"Notification({self._read()!r})"

    def _repr_html_(self) -> str:
        return html_table(("attribute", "value"), ((each, repr(self[each])) for each in self))

    def __repr__(self) -> str:
        """Shows all parts: type marks too, the body and the envelope if there are any."""
        shown = [repr(self._read())]
        shown += [f"body={self.body!r}"] if self.body else []
        shown += [f"content_type={self.content_type!r}"] if self.content_type else []
        shown += [f"envelope={self.envelope!r}"] if self.envelope != UNSTAMPED else []
        return f"Notification({', '.join(shown)})"


_decode_parts: Final = msgspec.msgpack.Decoder(
    tuple[int, str, tuple[msgspec.Raw, Envelope, bytes, str]]
).decode


def _decode_plain(packed: bytes) -> dict[str, Values]:
    """As `plain_reader.plain_attributes`, where it is not compiled."""
    return decode_map(_decode_parts(packed)[2][0])


_plain_attributes: Final = getattr(NATIVE, "plain_attributes", _decode_plain)
if NATIVE is not None:
    NATIVE.value_of.__name__ = "__getitem__"  # For `help`.
    NATIVE.value_of.__qualname__ = "Notification.__getitem__"
    Notification.__getitem__ = NATIVE.value_of  # type: ignore[method-assign]

_slots: Final = vars(Notification)
_set_span: Final = _slots["span"].__set__
_set_packed: Final = _slots["packed"].__set__
_set_body: Final = _slots["body"].__set__
_set_content_type: Final = _slots["content_type"].__set__
_set_envelope: Final = _slots["envelope"].__set__
_set_values: Final = _slots["_values"].__set__
_get_values: Final = _slots["_values"].__get__
_set_keys: Final = _slots["_keys"].__set__


def raw_attributes(notification: Notification) -> dict[str, Values]:
    """Returns the attributes themselves, which nobody may change."""
    return _get_values(notification) or notification._read()


def keys_in(values: Values) -> tuple[Key, ...]:
    """Returns the keys of one value, or of several, sorted."""
    if type(values) is tuple:
        return tuple(sorted(map(key_of, values)))
    return (key_of(values),)  # type: ignore[arg-type]


def from_parts(
    span: bytes,
    body: bytes,
    content_type: str,
    envelope: Envelope,
    packed: bytes = b"",
    values: dict[str, Values] | None = None,
) -> Notification:
    """Returns the notification of checked parts; `values` are those of the span, if decoded."""
    notification = _new(Notification)
    _set_span(notification, span)
    _set_body(notification, body)
    _set_content_type(notification, content_type)
    _set_envelope(notification, envelope)
    _set_packed(notification, packed)
    _set_values(notification, values)
    return notification


def from_plain(
    attributes: dict[str, Any], envelope: Envelope, several: Iterable[str] = ()
) -> Notification:
    """Returns the notification of valid names and of values of plain types; owns the dictionary.

    The values of the names in `several` are lists. Raises InvalidNotificationError for a value
    beyond its range.
    """
    kept: Any = attributes if len(attributes) <= ATTRIBUTES_KEPT_MAX and not several else None
    for name in several:
        values = attributes[name]
        if _TEXTS.issuperset(map(type, values)):
            held = sorted(set(values))  # The order of texts is that of their bytes.
            attributes[name] = held if len(held) > 1 else held[0]
        else:
            attributes[name] = normalize_values(name, values)
    span = plain_values_span(attributes)
    if span is None:
        return Notification.from_attributes(attributes, b"", "", envelope)
    return from_parts(span, b"", "", envelope, values=kept)


def store_packed(of: Notification, packed: bytes) -> None:
    """Stores the encoding of a notification, so that it is made once."""
    _set_packed(of, packed)


def _check_body(body: object, content_type: str) -> None:
    if not isinstance(body, bytes):
        raise InvalidNotificationError("@body", body, "the body is bytes")
    check_text("@content_type", content_type)
