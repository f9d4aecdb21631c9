"""`NamingTable`: the original names, and positions in a document, of generated names.

Several naming services keep a table each. Records reach them in any order, some twice, some late.
So adding a record is commutative, associative and idempotent: services with the same records have
the same table. If two records give one generated name of one kind of document different meanings,
the record with the least (time, author, original, position) wins everywhere; the outcome CONFLICT
reports this. A record beyond a limit is refused; only then a table depends on the order of records.

Source: Erenkrantz 2001 §6.5 (the daemon's database of original and generated names).
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from contrada.errors import InvalidNotificationError
from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.model import Notification
from contrada.model.domains.values import datetime_of, time_us_of

NAMING_TEXT_BYTES_MAX: Final = 1_024
"""Bytes of each text of a naming record. Beyond it: InvalidNotificationError, and a naming
service that receives the record refuses it, counted."""

MARK: Final = "contrada.naming"
"""The attribute that marks a notification as a naming record."""

RECORD: Final = "record"
"""The value of this attribute."""

_TEXTS: Final = ("kind", "generated", "original", "position")


class NamingRecord(NamedTuple):
    """The meaning of a generated name, by its author.

    `kind` is that of the document, `original` the name in the document, `position` its place, such
    as `backslash.story[2].title`. `who` is the author, `time_us` in UTC microseconds since 1970.
    """

    kind: str
    generated: str
    original: str
    position: str
    who: str
    time_us: int

    @property
    def rank(self) -> tuple[int, str, str, str]:
        """The record with the lesser rank wins a conflict."""
        return self.time_us, self.who, self.original, self.position

    def to_notification(self) -> Notification:
        """Returns the notification that carries the record. Raises InvalidNotificationError."""
        texts: dict[str, Any] = {name: getattr(self, name) for name in _TEXTS}
        for name, text in texts.items():
            _check(name, text)
        author = {"who": self.who, "time": datetime_of(self.time_us)} if self.who else {}
        return Notification({MARK: RECORD, **texts, **author})

    @classmethod
    def from_notification(cls, notification: Notification) -> "NamingRecord":
        """Returns the record that a notification carries. Raises InvalidNotificationError.

        The publisher is the default author, and the time of publication the default time.
        """
        held = notification.attributes
        kind, generated, original, position = (_check(name, held.get(name)) for name in _TEXTS)
        who = _check("who", held.get("who", notification.envelope.publisher))
        time = held.get("time", datetime_of(notification.envelope.at_us))
        if not isinstance(time, datetime):
            raise InvalidNotificationError("time", time, "expected one time")
        return cls(kind, generated, original, position, who, time_us_of(time))


class NamingOutcome(Enum):
    """The result of adding a record. KNOWN: it, or an earlier equivalent one, is in the table.

    CONFLICT: it contradicts one in the table, which has the winner now. REFUSED: the table is full.
    """

    NEW = "new"
    KNOWN = "known"
    CONFLICT = "conflict"
    REFUSED = "refused"


class NamingTable:
    """The valid records, by kind and generated name."""

    def __init__(
        self, records: Iterable[NamingRecord] = (), limits: DocumentLimits = DocumentLimits()
    ) -> None:
        self._limits = limits
        self._kinds: dict[str, dict[str, NamingRecord]] = {}
        for each in records:
            self.take(each)

    def take(self, record: NamingRecord) -> NamingOutcome:
        """Adds a record. Cost: constant."""
        names = self._kinds.get(record.kind)
        if names is None:
            if len(self._kinds) >= self._limits.kinds_max:
                return NamingOutcome.REFUSED
            names = self._kinds[record.kind] = {}
        known = names.get(record.generated)
        if known is None:
            if len(names) >= self._limits.kind_names_max:
                return NamingOutcome.REFUSED
            names[record.generated] = record
            return NamingOutcome.NEW
        if record.rank < known.rank:
            names[record.generated] = record
        is_same = (record.original, record.position) == (known.original, known.position)
        return NamingOutcome.KNOWN if is_same else NamingOutcome.CONFLICT

    def get(self, kind: str, generated: str) -> NamingRecord | None:
        """Returns the valid record of a generated name."""
        return self._kinds.get(kind, {}).get(generated)

    def kinds(self) -> tuple[str, ...]:
        """Returns the kinds of documents with records."""
        return tuple(self._kinds)

    def of_kind(self, kind: str) -> Mapping[str, NamingRecord]:
        """Returns the records of a kind of document by generated name; a live view."""
        return self._kinds.get(kind, {})

    def of_original(self, kind: str, original: str) -> list[NamingRecord]:
        """Returns the records of an original name, by position. Cost: all records of the kind."""
        found = (each for each in self.of_kind(kind).values() if each.original == original)
        return sorted(found, key=lambda each: (len(each.generated), each.generated))

    def __iter__(self) -> Iterator[NamingRecord]:
        return (record for names in self._kinds.values() for record in names.values())

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NamingTable):
            return NotImplemented
        return self._kinds == other._kinds

    __hash__ = None  # type: ignore[assignment]


def _check(name: str, text: object) -> str:
    if not isinstance(text, str) or not text:
        raise InvalidNotificationError(name, text, "expected a text")
    if len(text.encode()) > NAMING_TEXT_BYTES_MAX:
        reason = f"longer than NAMING_TEXT_BYTES_MAX = {NAMING_TEXT_BYTES_MAX} allows"
        raise InvalidNotificationError(name, text, reason)
    return text
