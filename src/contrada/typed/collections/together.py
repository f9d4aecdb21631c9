"""Several obvents as one notification: they come together or not at all.

Its attributes say what filters may ask before it is taken apart: the mark `@is.Together`, for each
type mark `@is.NAME` of a part the attribute `@of.NAME`, and the subjects. The parts are its body, a
list of msgpack. So a server cannot decide which parts a filter over content wants; the subscriber
decides that exactly, for each part.

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
"""Obvents that are published together. Beyond it: LimitError."""

TOGETHER_BODY: Final = "application/vnd.contrada.together+msgpack"
"""The content type of a body that holds notifications: a list of msgpack, each as its bytes."""

PART_PREFIX: Final = "@of."
MARK: Final = mark_name(TOGETHER)

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[bytes]).decode


@dataclass(frozen=True, slots=True)
class Together:
    """Notifications that were published together, in their order.

    Subscribers that want the parts undivided can subscribe it; collections take it apart.
    """

    parts: tuple[Notification, ...]

    @classmethod
    def to_filters(cls) -> Filter:
        """All that was published together, of whatever types."""
        return Filter({MARK: True})

    @classmethod
    def from_notification(cls, notification: Notification) -> "Together":
        """Its parts, each in the envelope of the whole. Raises InvalidObventError."""
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
        """The notification that carries them.

        Raises InvalidObventError where they are none or promise different things, LimitError.
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
        return Notification.restored(attributes, body, TOGETHER_BODY, envelope)


def part_mark(mark: str) -> str:
    """The attribute that says that a part has a type mark."""
    return PART_PREFIX + mark.removeprefix(MARK_PREFIX)


def is_together(notification: Notification) -> bool:
    """Whether a notification carries others."""
    return notification.content_type == TOGETHER_BODY and MARK in notification.attributes


def _common_envelope(parts: Sequence[Notification]) -> Envelope:
    """The envelope of all; it says what is promised of them."""
    first = parts[0].envelope
    asked = (first.delivery, first.ttl_us, first.priority)
    for each in parts[1:]:
        other = (each.envelope.delivery, each.envelope.ttl_us, each.envelope.priority)
        if other != asked:
            reason = f"what is published together is promised the same, not {asked} and {other}"
            raise InvalidObventError(TOGETHER, reason)
    return Envelope(delivery=first.delivery, ttl_us=first.ttl_us, priority=first.priority)
