"""`Parts`: the encoded parts of an object; `Rest`: those beside the fields of its known class.

An object of an unknown type is of an anonymous subclass of the nearest known class, and has a
`Rest` beside its fields. If the known class is abstract, its abstract methods raise.

Source: EPFL 2503 §3.3.3 (objects over the wire), §2.4.2, §3.4.1 (types are added without changes).
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from contrada.errors import InvalidObventError
from contrada.model import Envelope, Notification
from contrada.model.algebra.notification import UNSTAMPED

OBVENT_BODY: Final = "application/vnd.contrada.obvent+msgpack"
"""The content type of a body with the entries that are no attributes: msgpack, by path."""

Values = dict[str, Any]

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Values).decode
# An integer beyond 64 bits, a lone surrogate, a subclass that has no such form.
_NOT_ENCODED: Final = (OverflowError, ValueError, TypeError, RecursionError)


@dataclass(slots=True)
class Parts:
    """The encoded parts of an object, by path."""

    attributes: Values = field(default_factory=dict)
    entries: Values = field(default_factory=dict)

    @classmethod
    def of(cls, notification: Notification, type_name: str) -> "Parts":
        """Returns the parts in a notification. Raises InvalidObventError for a damaged body."""
        attributes: Any = notification.attributes
        if not notification.body or notification.content_type != OBVENT_BODY:
            return cls(attributes)
        try:
            return cls(attributes, _decode(notification.body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidObventError(type_name, f"its body is damaged: {error}") from None

    def notification(self, type_name: str, envelope: Envelope = UNSTAMPED) -> Notification:
        """Returns their notification. Raises InvalidNotificationError, InvalidObventError."""
        body = self._body(type_name) if self.entries else b""
        content_type = OBVENT_BODY if body else ""
        return Notification.from_attributes(self.attributes, body, content_type, envelope)

    def _body(self, type_name: str) -> bytes:
        try:
            return _encode(self.entries)
        except _NOT_ENCODED:
            for name, entry in self.entries.items():
                try:
                    _encode(entry)
                except _NOT_ENCODED as error:
                    reason = f"{name} = {entry!r}: {error}"
                    raise InvalidObventError(type_name, reason) from None
            raise

    def add(self, other: "Parts") -> None:
        """Adds the parts of another object."""
        self.attributes.update(other.attributes)
        self.entries.update(other.entries)


REST: Final = "_obvent_rest"
"""The attribute of an object that holds its `Rest`."""

_UNKNOWN: Final = "__obvent_unknown__"
_ANONYMOUS: Final = "__obvent_anonymous__"


@dataclass(frozen=True, slots=True)
class Rest:
    """The parts of a notification that are not in the fields."""

    marks: tuple[str, ...]
    parts: Parts


def is_unknown(cls: type[Any]) -> bool:
    """Whether a class is the anonymous subclass for unknown types."""
    return _UNKNOWN in cls.__dict__


def known_of(cls: type[Any]) -> type[Any]:
    """Returns the class itself, or the nearest known class."""
    return cls.__bases__[0] if is_unknown(cls) else cls


def rest_of(obvent: Any) -> Rest:
    """Returns the rest of an object of an anonymous class."""
    held: Rest = getattr(obvent, REST)
    return held


def attach_rest(obvent: Any, rest: Rest) -> Any:
    """Returns the object, which is of an anonymous class, with its rest."""
    if isinstance(obvent, msgspec.Struct):
        vars(obvent)[REST] = rest  # The setter of structs refuses other names.
    else:
        object.__setattr__(obvent, REST, rest)
    return obvent


def anonymous_subclass(known: type[Any]) -> type[Any]:
    """Returns the anonymous subclass of a known class."""
    made: type[Any] | None = known.__dict__.get(_ANONYMOUS)
    if made is None:
        made = _made(known)
        setattr(known, _ANONYMOUS, made)
    return made


def _made(known: type[Any]) -> type[Any]:
    name = f"{known.__name__}…"
    space: dict[str, Any] = {_UNKNOWN: True, "__module__": known.__module__}
    for each in getattr(known, "__abstractmethods__", ()):
        space[each] = _stub(known, each)
    if issubclass(known, msgspec.Struct):
        return msgspec.defstruct(name, [], bases=(known,), namespace=space, dict=True, gc=True)
    if not hasattr(known, "__pydantic_validator__"):
        space["__slots__"] = (REST,)
    metaclass: Any = type(known)
    unknown: type[Any] = metaclass(name, (known,), space)
    return unknown


def _stub(known: type[Any], name: str) -> Any:
    def abstract(self: object, *_: object, **__: object) -> Any:
        method = f"{known.__qualname__}.{name}"
        raise NotImplementedError(f"{method} is abstract; its class is not known")

    held: Callable[..., Any] | property = inspect.getattr_static(known, name)
    return property(abstract) if isinstance(held, property) else abstract
