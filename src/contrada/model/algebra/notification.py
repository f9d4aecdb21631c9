"""Notifications: attributes, an envelope, and an opaque body.

An attribute has one value, or a finite set of values; it matches a constraint when one of them
does. An empty set of values is the same as no attribute. Some names belong to the system: the
envelope's `@id`, `@publisher`, `@time`, and those of the type marks, `@is.NAME`.

A notification holds its attributes as bytes: one map of msgpack, its *span*. They are checked once,
when it is made, and read from there when somebody asks; one made of a few plain values keeps them,
for readers beside it. The index matches the span itself, and it travels unchanged, so that nothing
is packed or parsed twice between publisher and subscriber.

Source: PODC 2000 §2 and figure 2.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from contrada.errors import InvalidNotificationError
from contrada.model.algebra import nested_objects, notation
from contrada.model.algebra.attributes import (
    ATTRIBUTES_MAX,
    Values,
    are_plain,
    check_attribute_name,
    count_in,
    good_names,
    good_names_and_marks,
    held_values,
    plain_span,
    plain_values_span,
    span_of_any,
    values_in,
)
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

ATTRIBUTES_KEPT_MAX: Final = 16
"""Attributes of a notification that keeps the values it was made of, to be read in this process.
Beyond it: they are read from its bytes when somebody asks."""

Body: TypeAlias = bytes | Mapping[str, Any]
"""A body, opaque; or a mapping that stands in it as JSON."""

PRIORITY_DEFAULT: Final = 4


def check_text(name: str, text: object) -> None:
    """Refuse what is no text of the envelope."""
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
    """What the service says about a notification; filters see it as @id, @publisher, @time.

    `time_us` is when it was published, in UTC microseconds since 1970; `ttl_us` how long it may
    live after that, `priority` 0 (lowest) to 9: both for best effort only. An access point fills in
    what is empty: no id, no publisher, no time (None; 0 is the first moment of 1970).

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
        # What access points stamp is told apart in one go: each that is read makes an envelope.
        time_us, id_, publisher, delivery = self.time_us, self.id, self.publisher, self.delivery
        if (
            delivery == BEST_EFFORT
            and self.ttl_us is None
            and type(time_us) is int
            and TIME_MIN_US <= time_us <= TIME_MAX_US
            and type(self.sequence) is int
            and 0 <= self.sequence <= INT_MAX
            and type(id_) is type(publisher) is type(delivery) is str
            and len(id_) <= ENVELOPE_TEXT_BYTES_MAX >= len(publisher)
            and id_.isascii()
            and publisher.isascii()
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
        """`time_us`, or 0 where it is still empty: what filters and patterns see."""
        return self.time_us or 0

    @property
    def expires_us(self) -> int | None:
        """The time from which it is too late to read it; None where that never comes."""
        if self.ttl_us is None or self.time_us is None or self.delivery != BEST_EFFORT:
            return None
        return self.time_us + self.ttl_us


BEST_EFFORT: Final = Envelope.__struct_defaults__[-1]
"""The default: by far the most envelopes have it."""

UNSTAMPED: Final = Envelope()

OWN: Final = Envelope()
"""Of a notification that nobody but the service has yet: it is stamped in place."""


def mark_name(type_name: str) -> str:
    """The attribute that marks a notification as an obvent of a type."""
    return f"{MARK_PREFIX}{type_name}"


class Notification(Product, Mapping[str, Values]):
    """An event: a mapping of attribute names to values, an envelope, a body. Immutable.

    `Notification({"symbol": "DIS", "change": -4.0})`; a list, tuple or set gives an attribute
    several values, a mapping gives names joined by dots; what fits no attribute makes the body all
    of the mapping as JSON (see `nesting`). Raises InvalidNotificationError with the name and the
    value, and LimitError beyond ATTRIBUTES_MAX. `dict(n)` gives the attributes back; several values
    are a tuple, distinct and in the order of the line. Their own order and repeats are in the body,
    where the mapping is given as the `body` too: it then is its JSON.

    As a product its named sets are its values, and every other attribute is absent.

    Source: PODC 2000 §2.
    """

    __slots__ = ("_keys", "_values", "body", "content_type", "envelope", "packed", "span")

    span: bytes
    """The attributes as one map of msgpack, checked."""

    packed: bytes
    """The whole encoding, where it came as such or was made already; else empty.

    What came from elsewhere goes on unchanged.
    """

    body: bytes
    content_type: str
    envelope: Envelope
    _values: dict[str, Values] | None
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
                raise InvalidNotificationError("", attributes, "attributes are a mapping")
            flat, is_whole = nested_objects.flattened(attributes)
            span = span_of_any(flat, system=False)
            if not is_whole:
                body = _body_for(attributes, body)
        elif len(attributes) <= ATTRIBUTES_KEPT_MAX:
            kept = dict(attributes)
        if not isinstance(body, bytes):
            body, content_type = _json_body(body, content_type)
        if body or content_type:
            _check_body(body, content_type)
        _set_span(self, span)
        _set_body(self, body)
        _set_content_type(self, content_type)
        _set_envelope(self, envelope)
        _set_packed(self, b"")
        _set_values(self, kept)

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
        if not good_names.issuperset(attributes):
            for name, value in attributes.items():
                check_attribute_name(name, value, system=False)
        both = {**attributes, **dict.fromkeys(map(mark_name, marks), True)}
        return cls.restored(both, body, content_type, envelope)

    @classmethod
    def restored(
        cls,
        attributes: Mapping[str, Value | Iterable[Value]],
        body: bytes,
        content_type: str,
        envelope: Envelope,
    ) -> "Notification":
        """A notification as it came from elsewhere: type marks are allowed."""
        if body != b"" or content_type:
            _check_body(body, content_type)
        span = plain_span(attributes, good_names_and_marks)
        kept: Any = None
        if span is None:
            span = span_of_any(attributes, system=True)
        elif len(attributes) <= ATTRIBUTES_KEPT_MAX:
            kept = dict(attributes)
        return of_parts(span, body, content_type, envelope, values=kept)

    def with_envelope(self, envelope: Envelope) -> "Notification":
        """The same notification in another envelope. Shares the attributes."""
        if self.envelope is OWN:
            _set_envelope(self, envelope)
            return self
        return of_parts(self.span, self.body, self.content_type, envelope, values=_get_values(self))

    @classmethod
    def from_json(cls, text: str) -> "Notification":
        """The notification that `to_json` wrote. Raises EncodingError with the reason."""
        return notation.read(cls, text)

    def to_json(self) -> str:
        """The whole notification as JSON, on one line; the same for equal ones. See `encoding`."""
        return notation.written(self)

    @property
    def attributes(self) -> Mapping[str, Values]:
        """The attributes, read only; several values are a tuple."""
        return MappingProxyType(self._read())

    def _read(self) -> dict[str, Values]:
        """The values, read from the span when they are asked for first."""
        values = self._values
        if values is None:
            values = values_in(self.span)
            _set_values(self, values)
        return values

    def __getattr__(self, name: str) -> Any:
        """A part that is read from the encoding when it is asked for first."""
        if name not in _PARTS:
            raise AttributeError(f"a Notification has no attribute {name!r}")
        _, _, (span, envelope, body, content_type) = _decode_parts(self.packed)
        _set_span(self, bytes(span))
        _set_envelope(self, envelope)
        _set_body(self, body)
        _set_content_type(self, content_type)
        return getattr(self, name)

    def keys_of(self, name: str) -> tuple[Key, ...]:
        """The keys of an attribute's values; of the envelope too; absent is a key."""
        try:
            known = self._keys
        except AttributeError:
            known = {}
            _set_keys(self, known)
        keys = known.get(name)
        if keys is None:
            known[name] = keys = self._find_keys(name)
        return keys

    def keys_among(self, asked: Collection[str]) -> dict[str, tuple[Key, ...]]:
        """The keys of the attributes that are asked for and not absent; none of the envelope.

        They are not kept, as those of `keys_of` are: mostly nobody asks for them again.
        """
        held = self._read()
        names = asked if len(asked) <= len(held) else held
        return {name: keys_in(held[name]) for name in names if name in held and name in asked}

    def _find_keys(self, name: str) -> tuple[Key, ...]:
        values = self._read()
        if name in values:
            return keys_in(values[name])
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
        names = (*self._read(), *ENVELOPE_SETS)
        return {name: of_keys(self.keys_of(name)) for name in names}

    @property
    def default(self) -> ValueSet:
        """Every other attribute is absent."""
        return ABSENT

    def __getitem__(self, name: str) -> Values:
        return self._read()[name]

    def __contains__(self, name: object) -> bool:
        return name in self._read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _identity(self) -> tuple[object, ...]:
        """What equal notifications have in common: 5 and 5.0 are one key."""
        attributes = frozenset((name, self.keys_of(name)) for name in self._read())
        return attributes, self.envelope, self.body, self.content_type

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Notification):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        attributes = frozenset((name, line.packed(self.keys_of(name))) for name in self._read())
        return hash((attributes, self.envelope.id, self.body, self.content_type))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Notification cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return (of_parts, (self.span, self.body, self.content_type, self.envelope))

    def __str__(self) -> str:
        return f"Notification({self._read()!r})"

    def __repr__(self) -> str:
        """All of it: type marks, the body and the envelope too, where it has these."""
        shown = [repr(self._read())]
        shown += [f"body={self.body!r}"] if self.body else []
        shown += [f"content_type={self.content_type!r}"] if self.content_type else []
        shown += [f"envelope={self.envelope!r}"] if self.envelope != UNSTAMPED else []
        return f"Notification({', '.join(shown)})"


_PARTS: Final = frozenset(("span", "body", "content_type", "envelope"))
_decode_parts: Final = msgspec.msgpack.Decoder(
    tuple[int, str, tuple[msgspec.Raw, Envelope, bytes, str]]
).decode

# A Notification refuses to be changed; only this module fills its slots, straight and quickly.
_new: Final = object.__new__
_slots: Final = vars(Notification)
_set_span: Final = _slots["span"].__set__
_set_packed: Final = _slots["packed"].__set__
_set_body: Final = _slots["body"].__set__
_set_content_type: Final = _slots["content_type"].__set__
_set_envelope: Final = _slots["envelope"].__set__
_set_values: Final = _slots["_values"].__set__
_get_values: Final = _slots["_values"].__get__
_set_keys: Final = _slots["_keys"].__set__


def keys_in(values: Values) -> tuple[Key, ...]:
    """The keys of one value, or of several, in the order of the line."""
    if type(values) is tuple:
        return tuple(sorted(map(key_of, values)))
    return (key_of(values),)  # type: ignore[arg-type]


def of_parts(
    span: bytes,
    body: bytes,
    content_type: str,
    envelope: Envelope,
    packed: bytes = b"",
    values: dict[str, Values] | None = None,
) -> Notification:
    """The notification with these parts, all checked already.

    `values` are those of the span as `check_span` gave them, where somebody will ask.
    """
    notification = _new(Notification)
    _set_span(notification, span)
    _set_body(notification, body)
    _set_content_type(notification, content_type)
    _set_envelope(notification, envelope)
    _set_packed(notification, packed)
    _set_values(notification, values)
    return notification


def of_plain(attributes: dict[str, Any], envelope: Envelope) -> Notification:
    """The notification of attributes that it takes over: their names good, their types plain.

    Raises as `Notification.restored` where a value is beyond its range all the same.
    """
    span = plain_values_span(attributes)
    if span is None:
        return Notification.restored(attributes, b"", "", envelope)
    kept: Any = attributes if len(attributes) <= ATTRIBUTES_KEPT_MAX else None
    return of_parts(span, b"", "", envelope, values=kept)


def of_found(
    attributes: dict[str, Any], several: Iterable[str], envelope: Envelope
) -> Notification:
    """As `of_plain`; of some names the values are a list each, of plain types.

    Raises as `Notification.restored`.
    """
    for name in several:
        values = attributes[name]
        if _TEXTS.issuperset(map(type, values)):
            held = sorted(set(values))  # The order of texts is that of their bytes.
            attributes[name] = held if len(held) > 1 else held[0]
        else:
            attributes[name] = held_values(name, values)
    span = plain_values_span(attributes)
    if span is None:
        return Notification.restored(attributes, b"", "", envelope)
    return of_parts(span, b"", "", envelope)


_TEXTS: Final = frozenset((str,))


def of_values(
    values: dict[str, Any], packed: bytes, begin: int, larges: int
) -> Notification | None:
    """The notification with these values, which stand in its encoding from there on.

    So many bytes there may begin an integer beyond 63 bits. All else is read from the encoding when
    it is asked for. None where the values must be looked at one by one.
    """
    count = count_in(packed, begin)
    if not len(values) == count <= ATTRIBUTES_MAX or not are_plain(values, larges):
        return None
    notification = _new(Notification)
    _set_packed(notification, packed)
    _set_values(notification, values)
    return notification


def keep_packed(of: Notification, packed: bytes) -> None:
    """Notes the encoding of a notification, so that it is made once."""
    _set_packed(of, packed)


# --- the body -----------------------------------------------------------------------------------


def _body_for(attributes: Mapping[str, Any], body: Body) -> Body:
    """The attributes for the body, since some of them are no attributes."""
    if body and body is not attributes:
        reason = "lists of objects or lists stay in the body, which is given already"
        raise InvalidNotificationError("@body", body, reason)
    return attributes


def _json_body(body: object, content_type: str) -> tuple[bytes, str]:
    """The body that a mapping is, and its content type."""
    if not isinstance(body, Mapping):
        raise InvalidNotificationError("@body", body, "the body is bytes, or a mapping")
    return nested_objects.as_json(body), content_type or nested_objects.JSON_TYPE


def _check_body(body: object, content_type: str) -> None:
    if not isinstance(body, bytes):
        raise InvalidNotificationError("@body", body, "the body is bytes")
    check_text("@content_type", content_type)
