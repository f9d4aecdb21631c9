"""`Parts`: the encoded parts of an object, as attributes and body entries.

Source: EPFL 2503 §3.3.3 (objects over the wire).
"""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from contrada.errors import InvalidObventError
from contrada.model import Envelope, Notification
from contrada.model.algebra.notification import UNSTAMPED

OBVENT_BODY: Final = "application/vnd.contrada.obvent+msgpack"
"""The content type of a body with the entries that are not attributes: a map of msgpack, by
path."""

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
        except (msgspec.DecodeError, RecursionError) as error:
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
