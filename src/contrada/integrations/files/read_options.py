"""How the records of one source are read: what a user may say about it.

The options are the same for every format and on both paths (`contrada match`, the pipeline),
and they are applied in one place, `ReadOptions.notification`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias

from contrada.errors import InputError, InvalidNameError, InvalidNotificationError
from contrada.integrations.documents.document_schema import validator_of
from contrada.integrations.documents.naming_strategies import STRATEGIES, base_of
from contrada.integrations.documents.stylesheet import compiled
from contrada.integrations.files.cells import (
    CONVERTERS,
    EPOCHS,
    Converter,
    time_value,
    untyped_value,
    zone_of,
)
from contrada.model import Envelope, Notification, Value
from contrada.model.algebra.attributes import ATTRIBUTES_MAX
from contrada.model.algebra.notification import UNSTAMPED
from contrada.model.domains.values import check_user_name, time_us_of

NAMES_KEPT_MAX: Final = 2**16
"""Names that are known as those of attributes. Beyond it: all are looked at again."""

RecordValues: TypeAlias = Mapping[str, Value | list[Value]]
"""What a record holds: one value of an attribute, or several."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a source.

    `types` declares the type of attributes by name (`text`, `number`, `bool`, `time`). `absent`
    lists the texts that mean "no value". `entries` is the name of the XML element that makes one
    notification each. `add` gives constant attributes; they replace what a record has under the
    same name. `time` names the attribute whose time becomes the envelope's. `marks` are the type
    marks of a typed publication, the most general first. `drop` lists names of records that become
    no attributes, nor do those below them (`agent`: also `agent.id`); `rename` gives other names to
    attributes. Both come first: all other options speak of the new names. `zone` is that of times
    which name none, as `Europe/Rome`. `delimiter` and `quote` are the signs of CSV; an empty quote
    means that none is special. `strategy` says how elements that occur several times in a document
    are named (`contrada.integrations.documents.STRATEGIES`). Of XML `stylesheet` is the XSLT that
    comes first, and `schema` the DTD, XML Schema or RELAX NG that a document must conform to; an
    XML Schema also tells types.

    Raises InputError, InvalidNameError and InvalidNotificationError for options with which no
    record could be read.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    entries: str | None = None
    add: Mapping[str, Value] = field(default_factory=dict)
    time: str | None = None
    marks: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: frozenset[str] = frozenset()
    zone: str | None = None
    delimiter: str = ","
    quote: str = '"'
    strategy: str = "multi"
    stylesheet: bytes | None = None
    schema: bytes | None = None

    def __post_init__(self) -> None:
        self._check_signs()
        self._check_strategy()
        if self.zone is not None:
            zone_of(self.zone)
        for name, type_name in self.types.items():
            if type_name not in CONVERTERS:
                known = ", ".join(CONVERTERS)
                raise InputError(
                    "types", f"attribute {name!r}: found {type_name!r}, expected one of {known}"
                )
        named = () if self.time is None else (self.time,)
        for name in (*self.types, *named, *self.rename.values()):
            check_user_name(name)
        Notification.marked(self.add, self.marks)  # What every record gets must be allowed.
        if self.time in self.add:
            self.envelope(self.add)

    def _check_signs(self) -> None:
        for what, sign, sizes in (
            ("delimiter", self.delimiter, {1}),
            ("quote", self.quote, {0, 1}),
        ):
            if len(sign) not in sizes or not sign.isascii() or sign in ("\n", "\r", "\0"):
                reason = f"found {sign!r}, expected one ASCII character"
                raise InputError(what, reason)
        if self.delimiter == self.quote:
            raise InputError("quote", f"found {self.quote!r}, which is the delimiter too")

    def _check_strategy(self) -> None:
        if self.strategy not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise InputError("strategy", f"found {self.strategy!r}, expected one of {known}")
        if self.strategy == "xslt" and self.stylesheet is None:
            raise InputError("strategy", "xslt needs a stylesheet")
        if self.stylesheet is not None:
            compiled(self.stylesheet)
        if self.schema is not None:
            validator_of(self.schema)

    @property
    def is_flat(self) -> bool:
        """Whether documents are read as they are, with several values of what is repeated."""
        is_multi = self.strategy == "multi" or (self.strategy == "split" and bool(self.entries))
        return is_multi and self.stylesheet is None and self.schema is None

    @property
    def is_multi(self) -> bool:
        """Whether an object of JSON is read as it is, with several values of what is repeated."""
        return base_of(self.strategy) == "multi" and not self.splits

    @property
    def splits(self) -> bool:
        """Whether a document is to be split where nobody has said at which elements."""
        return self.strategy == "split" and not self.entries

    @property
    def is_renaming(self) -> bool:
        """Whether attributes may be named otherwise than the records' parts."""
        return bool(self.rename or self.drop)

    def attribute(self, name: str) -> str | None:
        """The attribute that a part of a record becomes, None where it is dropped."""
        if not self.is_renaming:
            return name
        return None if self.is_dropped(name) else self.rename.get(name, name)

    def is_dropped(self, name: str) -> bool:
        """Whether a part of a record becomes no attribute."""
        return name in self.drop or any(name.startswith(f"{each}.") for each in self.drop)

    @property
    def stamp(self) -> str | None:
        """The attribute of each record that stamps its envelope."""
        return None if self.time in self.add else self.time

    def names_expected(self) -> set[str]:
        """The attributes that options speak of; where no record has one, it is likely a slip."""
        named = {*self.types, *self.rename.values(), *({self.time} - {None})}
        return {name for name in named if name is not None and name not in self.add}

    def names_checked(self) -> set[str]:
        """The attributes whose values can make a record bad."""
        typed = {name for name, kind in self.types.items() if kind != "text"}
        return typed if self.stamp is None else {*typed, self.stamp}

    def converter(self, name: str) -> Converter:
        """What turns the cells of an attribute into its values."""
        return untyped_value if name not in self.types else self.typed(name)

    def typed(self, name: str) -> Converter:
        """What turns texts into values of an attribute's declared type; text where none is."""
        declared = self.types.get(name, "text")
        if declared == "time" and self.zone is not None:
            return partial(time_value, zone=self.zone)
        return CONVERTERS[declared]

    def takes_numbers(self, name: str) -> bool:
        """Whether numbers, too, are converted to the attribute's type."""
        return self.types.get(name) in EPOCHS

    def is_absent(self, text: str) -> bool:
        """Whether a cell holds no value."""
        return not text or text in self.absent

    def notification(
        self, found: RecordValues, *, body: bytes = b"", content_type: str = ""
    ) -> Notification:
        """The notification of a record.

        Raises InvalidNotificationError for a name or value that the model refuses, and where
        the attribute named by `time` is absent or no time.
        """
        attributes: Any = {**found, **self.add} if self.add else found
        envelope = self.envelope(attributes)
        if self.marks:
            return Notification.marked(
                attributes,
                marks=self.marks,
                body=body,
                content_type=content_type,
                envelope=envelope,
            )
        return Notification(attributes, body=body, content_type=content_type, envelope=envelope)

    def envelope(self, attributes: Mapping[str, object]) -> Envelope:
        """The envelope of a record. Raises InvalidNotificationError as `notification`."""
        if self.time is None:
            return UNSTAMPED
        stamp = attributes.get(self.time)
        if isinstance(stamp, list) and len(stamp) == 1:
            stamp = stamp[0]
        if not isinstance(stamp, datetime):
            reason = "the source's time attribute must hold one time (declare its type as time)"
            raise InvalidNotificationError(self.time, stamp, reason)
        return Envelope(time_us=time_us_of(stamp))


def check_xml(format_name: str, options: ReadOptions) -> None:
    """Refuse a stylesheet and a schema for what is no XML. Raises InputError."""
    for name in ("stylesheet", "schema"):
        if format_name != "xml" and getattr(options, name) is not None:
            raise InputError(name, f"it is for XML, and the format is {format_name}")


def plain_format(format_name: str, options: ReadOptions) -> tuple[str, ReadOptions]:
    """A format with what its name says of the options.

    `tsv` is CSV parted by tabs, `jsonl` is JSON in lines also where `entries` are given.
    Raises InputError as `check_xml`.
    """
    check_xml(format_name, options)
    if format_name == "jsonl":
        return "json", replace(options, entries=None)
    if format_name != "tsv":
        return format_name, options
    has_own = options.delimiter != ","
    return "csv", options if has_own else replace(options, delimiter="\t")


class AllowedNames:
    """Tells of the names of many records whether records of a source can have such attributes."""

    def __init__(self, options: ReadOptions) -> None:
        self._good: set[str] = set()
        self._count_max = ATTRIBUTES_MAX - len(options.add)

    def allow(self, names: Iterable[str], most: int) -> bool:
        """Whether records can have attributes of these names, of which one has so many."""
        if not self._good.issuperset(names):
            if len(self._good) > NAMES_KEPT_MAX:
                self._good.clear()
            try:
                self._good.update(map(check_user_name, names))
            except InvalidNameError:
                return False
        return most <= self._count_max
