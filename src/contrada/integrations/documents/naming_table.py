"""`NamingTable`: which original names, and places in a document, generated names stand for.

Several naming services keep a table each. Records reach them in any order, some twice, some late.
So taking a record in is commutative, associative and idempotent: services that heard the same
records have the same table. Where two records give one generated name of one kind of document
different meanings, the record with the least (time, who, original, position) stands, everywhere;
the outcome CONFLICT tells the caller. A record beyond a limit is refused: then what a table holds
depends on which records came first.

Source: Erenkrantz 2001 §6.5 (the daemon's database of original and generated names).
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from contrada.errors import InvalidNotificationError
from contrada.model import Notification
from contrada.model.domains.values import datetime_of, time_us_of

KINDS_MAX: Final = 1_024
"""Kinds of documents whose names a table holds. Beyond it: those of others are refused, counted."""

KIND_NAMES_MAX: Final = 16_384
"""Generated names of one kind of document that a table holds. Beyond it: others are refused,
counted."""

NAMING_TEXT_BYTES_MAX: Final = 1_024
"""Bytes of each text of a naming record. Beyond it: InvalidNotificationError, and a naming service
that receives the record refuses it, counted."""

MARK: Final = "contrada.naming"
"""The attribute by which a notification says that it is a naming record."""

RECORD: Final = "record"
"""The value of this attribute."""

_TEXTS: Final = ("kind", "generated", "original", "position")


class NamingRecord(NamedTuple):
    """Somebody's word that a name was generated, and for what.

    `kind` is that of the document, `original` the name that it has there, `position` its place, as
    `backslash.story[2].title`. `who` said it, at a time in UTC microseconds since 1970.
    """

    kind: str
    generated: str
    original: str
    position: str
    who: str
    time_us: int

    @property
    def rank(self) -> tuple[int, str, str, str]:
        """Of two records about one name, the record with the lesser rank stands."""
        return self.time_us, self.who, self.original, self.position

    def to_notification(self) -> Notification:
        """The record as it travels. Raises InvalidNotificationError."""
        texts: dict[str, Any] = {name: getattr(self, name) for name in _TEXTS}
        for name, text in texts.items():
            _check(name, text)
        told = {"who": self.who, "time": datetime_of(self.time_us)} if self.who else {}
        return Notification({MARK: RECORD, **texts, **told})

    @classmethod
    def from_notification(cls, told: Notification) -> "NamingRecord":
        """The record that a notification carries.

        Where it names no author, its publisher is the author; where it names no time, its own time
        of publication counts. Raises InvalidNotificationError for what is no record.
        """
        held = told.attributes
        kind, generated, original, position = (_check(name, held.get(name)) for name in _TEXTS)
        who = _check("who", held.get("who", told.envelope.publisher))
        said = held.get("time", datetime_of(told.envelope.at_us))
        if not isinstance(said, datetime):
            raise InvalidNotificationError("time", said, "expected one time")
        return cls(kind, generated, original, position, who, time_us_of(said))


class NamingOutcome(Enum):
    """What became of a record that was given to a table."""

    NEW = "new"
    """It stands."""
    KNOWN = "known"
    """The record, or an earlier one that says the same, stands already."""
    CONFLICT = "conflict"
    """The record contradicts one that stood; one of the two stands now."""
    REFUSED = "refused"
    """There is no room."""


class NamingTable:
    """The records that stand, by kind and generated name."""

    def __init__(self, records: Iterable[NamingRecord] = ()) -> None:
        self._kinds: dict[str, dict[str, NamingRecord]] = {}
        for each in records:
            self.take(each)

    def take(self, record: NamingRecord) -> NamingOutcome:
        """Take a record in. Cost: constant."""
        names = self._kinds.get(record.kind)
        if names is None:
            if len(self._kinds) >= KINDS_MAX:
                return NamingOutcome.REFUSED
            names = self._kinds[record.kind] = {}
        known = names.get(record.generated)
        if known is None:
            if len(names) >= KIND_NAMES_MAX:
                return NamingOutcome.REFUSED
            names[record.generated] = record
            return NamingOutcome.NEW
        if record.rank < known.rank:
            names[record.generated] = record
        is_same = (record.original, record.position) == (known.original, known.position)
        return NamingOutcome.KNOWN if is_same else NamingOutcome.CONFLICT

    def get(self, kind: str, generated: str) -> NamingRecord | None:
        """The record that stands about a generated name."""
        return self._kinds.get(kind, {}).get(generated)

    def of_kind(self, kind: str) -> Mapping[str, NamingRecord]:
        """The records of a kind of document by generated name; it changes with the table."""
        return self._kinds.get(kind, {})

    def of_original(self, kind: str, original: str) -> list[NamingRecord]:
        """The records about an original name, by position. Cost: all of the kind."""
        found = (each for each in self.of_kind(kind).values() if each.original == original)
        return sorted(found, key=lambda each: (len(each.generated), each.generated))

    def __iter__(self) -> Iterator[NamingRecord]:
        return (record for names in self._kinds.values() for record in names.values())

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def __eq__(self, other: object) -> bool:
        """Whether the same records stand."""
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
