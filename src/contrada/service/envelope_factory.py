"""`EnvelopeFactory`: stamps the notifications of a publisher with identity, number and time.

Notifications are numbered from 1 and stamped with the wall clock, never backwards: after the clock
was put back, time goes on at half its pace until the clock has caught up. The id has a random part
for each access point, so it is unique even if the publisher's name is used again.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import force_setattr, replace

from contrada.errors import InvalidValueError, ServiceError
from contrada.model import Envelope, Notification
from contrada.model.algebra.attributes import good_names, good_names_and_marks
from contrada.model.algebra.notification import BEST_EFFORT, OWN, UNSTAMPED
from contrada.model.codec import pack_plain, stamp_copy, stamp_plain
from contrada.service.requests import notification_of
from contrada.service.security.principals import owns
from contrada.service.subjects import Item

if TYPE_CHECKING:
    from contrada.service.security.signatures import Signer

T = TypeVar("T")

PUBLISHER_BYTES_MAX: Final = 128
"""Bytes of a publisher's name in UTF-8. Beyond it: ServiceError."""


class EnvelopeFactory:
    """The envelopes of one publisher."""

    def __init__(self, publisher: "str | Signer | None" = None) -> None:
        """`publisher` is its name, or its signer; the default is a random name."""
        self._token = token = secrets.token_hex(8)
        self._sign: Callable[[Notification], Notification] | None = None
        if publisher is None:
            self.publisher, self._prefix = token, f"{token}."
        else:
            if not isinstance(publisher, str):
                self._sign, publisher = publisher.signed, publisher.publisher
            self.publisher = _checked(publisher)
            self._prefix = f"{publisher}.{token}."
        self.stays = False
        """Whether a broker may not change the name."""
        self.sequence = 0
        """The highest number in use, as far as known."""
        self._time_us = 0
        self._slowed_ns = 0
        """The monotonic time up to which half the pace is counted; 0 while the clock is ahead."""
        self.has_told_time = False
        """Whether a notification was stamped by the clock: then none earlier is published."""

    def go_below(self, name: str) -> None:
        """Changes the publisher's name to a unique one below `name`, if it may change.

        It stays if `name` is empty, or would make it too long.
        """
        below = f"{name}/{self._token}"
        if self.stays or not name or owns((name,), self.publisher):
            return
        if len(below.encode()) <= PUBLISHER_BYTES_MAX:
            self.publisher, self._prefix = below, f"{below}."

    def stamped(self, notifications: Iterable[Notification], now_us: int) -> list[Notification]:
        """The notifications with complete envelopes, signed by a signer; given fields are kept.

        A notification with an id was published before; it keeps id, publisher and sequence. Raises
        InvalidValueError for one with another publisher and no number.
        """
        stamped = []
        for each in notifications:
            given = each.envelope
            if given.id and given.time_us is not None:
                stamped.append(each)
                continue
            if given.publisher and not given.id:
                given = with_identity(each).envelope
                if not given.id and given.publisher != self.publisher:
                    reason = "the publisher of an envelope without an id or a sequence"
                    raise InvalidValueError(
                        given.publisher,
                        f"{reason}: add an id or a sequence, or leave out the publisher",
                    )
            time_us = given.time_us
            if time_us is None:
                time_us = now_us
                self.has_told_time = True
            if given.id:
                stamped.append(each.with_envelope(replace(given, time_us=time_us)))
                continue
            self.sequence += 1
            if stamp_copy is None or given is OWN:
                stamped.append(each.with_envelope(self._completed(given, time_us)))
                continue
            text = f"{self._prefix}{self.sequence}"
            stamped.append(
                stamp_copy(each, Notification, text, self.publisher, self.sequence, time_us)
            )
        return stamped if self._sign is None else [*map(self._sign, stamped)]

    def _completed(self, given: Envelope, time_us: int) -> Envelope:
        """The envelope with the publisher, its present number, and the time."""
        # These values are valid: checking them again would take twice as long.
        envelope: Envelope = given.__copy__()  # type: ignore[attr-defined]
        force_setattr(envelope, "id", f"{self._prefix}{self.sequence}")
        force_setattr(envelope, "publisher", self.publisher)
        force_setattr(envelope, "sequence", self.sequence)
        force_setattr(envelope, "time_us", time_us)
        return envelope

    def last_envelope(self) -> Envelope:
        """The envelope of the last mapping that `pack_dicts` has encoded just now."""
        return self._completed(UNSTAMPED, self._time_us)

    def pack_dicts(
        self, items: list[Item], begin: int, most: int, *, is_obvent: bool = False
    ) -> list[bytes]:
        """The encodings of the first items from `begin`, stamped, at most `most`.

        They end before an item that must be checked by itself, or signed. Those of obvents have
        type marks, too.
        """
        if pack_plain is None or self._sign is not None:
            return []
        number, now_us = self.sequence + 1, self.now_us()
        good = good_names_and_marks if is_obvent else good_names
        made = pack_plain(items, begin, most, self._prefix, self.publisher, number, now_us, good)
        if made:
            self.sequence += len(made)
            self.has_told_time = True
        return made

    def stamp_dicts(
        self, items: list[Item], begin: int, most: int, *, is_obvent: bool = False
    ) -> list[Notification]:
        """The stamped notifications of the first items from `begin`, as `pack_dicts`."""
        if stamp_plain is None or self._sign is not None:
            return []
        number, now_us, name = self.sequence + 1, self.now_us(), self.publisher
        of, good = Notification, good_names_and_marks if is_obvent else good_names
        made = stamp_plain(
            items, begin, most, self._prefix, name, number, now_us, good, of, UNSTAMPED
        )
        if made:
            self.sequence += len(made)
            self.has_told_time = True
        return made

    def packed(self, item: Item) -> bytes | Notification:
        """The encoding of the stamped item, if it can be made at once.

        Otherwise, and with a signer, the result of `best_effort`. Raises as `notification_of`.
        """
        if type(item) is Notification:  # The steps for other items would cost twice as much.
            return self.best_effort(item)
        for packed in of_one(item, self.pack_dicts):
            return packed
        return self.best_effort(notification_of(item))

    def best_effort(self, notification: Notification) -> Notification:
        """The stamped notification; above best effort it is stamped later, with its run.

        Otherwise a batch would be numbered and timed in another order than it is sent.
        """
        if notification.envelope.delivery != BEST_EFFORT:
            return notification
        (stamped,) = self.stamped((notification,), self.now_us())
        return stamped

    def go_on_after(self, sequence: int) -> None:
        """Numbers the next notification above this one, which was used before a restart."""
        self.sequence = max(self.sequence, sequence)

    def now_us(self) -> int:
        """The time of the clock, never backwards, and never constant for long."""
        now_us = time.time_ns() // 1000
        if now_us > self._time_us:  # As mostly.
            self._time_us, self._slowed_ns = now_us, 0
            return now_us
        passed_ns = time.monotonic_ns()
        if self._slowed_ns:
            gained_us = (passed_ns - self._slowed_ns) // 2000
            self._time_us += gained_us
            self._slowed_ns += 2000 * gained_us
        else:
            self._slowed_ns = passed_ns
        return self._time_us


def of_one(item: Item, make: Callable[..., list[T]]) -> list[T]:
    """The result of `stamp_dicts` or `pack_dicts` for a mapping or an obvent; empty for another.

    Also for an obvent that is not published as the mapping of its attributes and type marks.
    """
    if type(item) is dict:
        return make([item], 0, 1)
    # Classes of obvents have it; they belong to a room above this one.
    find = getattr(type(item), "__obvent_attributes__", None)
    attributes = None if find is None else find(item)
    return [] if attributes is None else make([attributes], 0, 1, is_obvent=True)


def with_identity(notification: Notification) -> Notification:
    """The notification with an id made of its publisher and number, if it has both and no id.

    So it keeps its publisher and number, and a repetition is recognised.
    """
    envelope = notification.envelope
    if envelope.id or not envelope.publisher or not envelope.sequence:
        return notification
    named = f"{envelope.publisher}.{envelope.sequence}"
    return notification.with_envelope(replace(envelope, id=named))


def runs_of(notifications: Iterable[Notification]) -> Iterator[list[Notification]]:
    """The notifications in runs of one delivery class and publisher."""

    def who(notification: Notification) -> tuple[str, str | None]:
        envelope = notification.envelope
        return envelope.delivery, envelope.publisher if envelope.id else None

    for _, run in groupby(map(with_identity, notifications), who):
        yield list(run)


def _checked(publisher: str) -> str:
    try:
        size = len(publisher.encode())
    except UnicodeEncodeError:  # A lone surrogate, from an argument that is not UTF-8.
        size = 0
    if not 0 < size <= PUBLISHER_BYTES_MAX:
        expected = f"a name of 1 to {PUBLISHER_BYTES_MAX} bytes of UTF-8"
        raise ServiceError(f"publisher {publisher[:40]!r}: expected {expected}")
    return publisher
