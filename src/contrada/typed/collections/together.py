"""`Together`: several obvents in one notification, delivered together or not at all.

Filters can use its attributes: the mark `@is.Together`, the attribute `@of.NAME` for each type mark
`@is.NAME` of a part, and the subjects. The parts are its body, a list of msgpack. So a server
cannot evaluate a content filter on a part; the subscriber does so, exactly, for each part.

Source: EPFL 2503 §7 (several events as one).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from contrada.errors import ContradaError, InvalidObventError, LimitError
from contrada.model import Envelope, Filter, Notification, from_msgpack, mark_name, to_msgpack
from contrada.model.domains.values import MARK_PREFIX
from contrada.typed.collections.subject_path import SUBJECT
from contrada.typed.type_names import TOGETHER

TOGETHER_MAX: Final = 1_000
"""Obvents published together. Beyond it: LimitError."""

TOGETHER_BODY: Final = "application/vnd.contrada.together+msgpack"
"""The content type of a body with notifications: a list of msgpack, each as its bytes."""

PART_PREFIX: Final = "@of."
MARK: Final = mark_name(TOGETHER)

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[bytes]).decode


@dataclass(frozen=True, slots=True)
class Together:
    """Notifications published together, in order; a subscriber gets them undivided."""

    parts: tuple[Notification, ...]

    @classmethod
    def to_filters(cls) -> Filter:
        """Returns the filter of all notifications published together, of any type."""
        return Filter({MARK: True})

    @classmethod
    def from_notification(cls, notification: Notification) -> "Together":
        """Returns its parts, each in the envelope of the whole. Raises InvalidObventError."""
        if notification.content_type != TOGETHER_BODY:
            raise InvalidObventError(TOGETHER, f"its body is {notification.content_type!r}")
        try:
            encoded = _decode(notification.body)
            if len(encoded) > TOGETHER_MAX:
                raise LimitError("TOGETHER_MAX", TOGETHER_MAX, len(encoded))
            parts = [from_msgpack(each) for each in encoded]
        except (msgspec.DecodeError, ContradaError) as error:
            raise InvalidObventError(TOGETHER, f"its body is damaged: {error}") from None
        made = []
        for each in parts:
            if not isinstance(each, Notification) or is_together(each):
                raise InvalidObventError(TOGETHER, "one of its parts is no single notification")
            made.append(each.with_envelope(notification.envelope))
        return cls(tuple(made))

    def to_notification(self) -> Notification:
        """Returns the notification that contains them.

        Raises InvalidObventError for no parts, or parts with different guarantees; LimitError.
        """
        if not self.parts:
            raise InvalidObventError(TOGETHER, "nothing is no notification")
        if len(self.parts) > TOGETHER_MAX:
            raise LimitError("TOGETHER_MAX", TOGETHER_MAX, len(self.parts))
        attributes: dict[str, Any] = {MARK: True}
        subjects: dict[str, None] = {}
        for each in self.parts:
            found = each.attributes
            marks = (name for name in found if name.startswith(MARK_PREFIX))
            attributes.update((part_mark(mark), True) for mark in marks)
            subject = found.get(SUBJECT)
            texts = subject if isinstance(subject, tuple) else (subject,)
            subjects.update(dict.fromkeys(it for it in texts if isinstance(it, str)))
        if subjects:
            attributes[SUBJECT] = tuple(subjects)
        body = _encode([to_msgpack(each) for each in self.parts])
        envelope = _common_envelope(self.parts)
        return Notification.from_attributes(attributes, body, TOGETHER_BODY, envelope)


def part_mark(mark: str) -> str:
    """Returns the attribute that announces a part with a type mark."""
    return PART_PREFIX + mark.removeprefix(MARK_PREFIX)


def is_together(notification: Notification) -> bool:
    """Whether a notification contains others."""
    return notification.content_type == TOGETHER_BODY and MARK in notification.attributes


def _common_envelope(parts: Sequence[Notification]) -> Envelope:
    first = parts[0].envelope
    terms = (first.delivery, first.ttl_us, first.priority)
    for each in parts[1:]:
        other = (each.envelope.delivery, each.envelope.ttl_us, each.envelope.priority)
        if other != terms:
            reason = f"parts published together need the same guarantees, not {terms} and {other}"
            raise InvalidObventError(TOGETHER, reason)
    return Envelope(delivery=first.delivery, ttl_us=first.ttl_us, priority=first.priority)
