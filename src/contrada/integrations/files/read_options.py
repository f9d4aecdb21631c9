"""`ReadOptions`: how the records of one source are read, and the values of its texts.

The options are the same for every format, for `contrada match` and for the pipeline, and
`ReadOptions.notification` alone applies them. The value of a cell, or of a text of XML, never
depends on the records around it:

1. an empty cell, or one of the source's markers for "no value" (`NA`), is absent;
2. a declared type decides; a text that is not of it is an error;
3. an integer or decimal literal as JSON spells it (no leading zeros, no `+`) is a number, if it
   fits into 64 bits or is a finite double;
4. exactly `true` and `false` are truth values;
5. any other text is a text, blanks included.

Source: Erenkrantz 2001 §2.1, the types of attribute values.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final

from contrada import errors
from contrada.errors import ContradaError, InvalidNotificationError, InvalidValueError, LimitError
from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.integrations.documents.document_schema import SchemaTypes, validator_of
from contrada.integrations.documents.document_shape import DROPPED
from contrada.integrations.documents.naming_strategies import STRATEGIES, Named, base_of
from contrada.integrations.documents.stylesheet import compiled
from contrada.integrations.files.lines import FileLimits
from contrada.integrations.files.time_formats import (
    PATTERN_PREFIX,
    check_pattern,
    pattern_value,
    time_value,
    zone_of,
)
from contrada.model import Envelope, Notification, Value
from contrada.model.algebra.attributes import ATTRIBUTES_MAX, VALUES_MAX
from contrada.model.algebra.notification import UNSTAMPED
from contrada.model.domains.values import (
    ENVELOPE_NAMES,
    INT_MAX,
    INT_MIN,
    check_user_name,
    datetime_of,
    time_us_of,
)

NOT_A_TIME: Final = "the source's time attribute must hold one time (declare its type as time)"
NO_TIME: Final = "it is absent, and is to give the time of the record"

NAMES_KEPT_MAX: Final = 2**16
"""Valid names of attributes that are cached. Beyond it: all are checked again."""

Converter = Callable[[Any], Value]

_LITERAL: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ODD_NUMBER: Final = re.compile(r"[+-]?0[0-9]|\+[0-9]")
_BEGINS_LITERAL: Final = frozenset("-0123456789")
_INTEGER_CHARS_MAX: Final = len(str(INT_MIN))
_SPECIAL_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def untyped_value(text: str) -> Value:
    """Returns the value of a cell that is not empty and has no declared type."""
    if text[0] in _BEGINS_LITERAL:
        number = _number(text)
        return text if number is None else number
    if text == "true":
        return True
    if text == "false":
        return False
    return text


def number_value(text: str) -> Value:
    """Declared `number`: a literal as JSON spells it, or `NaN`, `Infinity`, `-Infinity`."""
    if text in _SPECIAL_NUMBERS:
        return _SPECIAL_NUMBERS[text]
    number = _number(text)
    if number is None:
        hint = " without `+` or leading zeros" if _ODD_NUMBER.match(text) else ""
        raise InvalidValueError(text, f"expected a number of 64 bits{hint}")
    return number


def bool_value(text: str) -> Value:
    """Declared `bool`: exactly `true` or `false`."""
    if text not in ("true", "false"):
        raise InvalidValueError(text, "expected true or false")
    return text == "true"


def epoch_value(given: str | int | float, *, unit_us: int) -> Value:
    """Declared `epoch…`: a number of a unit since 1970, rounded to microseconds."""
    number = _number(given) if isinstance(given, str) else given
    try:
        if number is None:
            raise ValueError
        # The digits that were written, not the double's.
        exact = Decimal(given if isinstance(given, str) else repr(given)) * unit_us
        return datetime_of(int(exact.to_integral_value()))
    except (ValueError, ArithmeticError, ContradaError):
        reason = "expected a number of seconds, or of parts of them, since 1970"
        raise InvalidValueError(given, reason) from None


EPOCHS: Final[Mapping[str, Converter]] = {
    "epoch": partial(epoch_value, unit_us=10**6),
    "epoch_ms": partial(epoch_value, unit_us=10**3),
    "epoch_us": partial(epoch_value, unit_us=1),
}
"""Times as numbers: seconds, milliseconds or microseconds since 1970 in UTC."""

CONVERTERS: Final[Mapping[str, Converter]] = {
    "text": str,  # unchanged, so that a tail number `1E5` stays a name
    "number": number_value,
    "bool": bool_value,
    "time": time_value,
    **EPOCHS,
}
"""The types that can be declared, by name."""


def check_groups(pattern: str) -> None:
    """Raises InputError for a regular expression that gives no attribute."""
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        reason = f"column {(error.pos or 0) + 1}: {error.msg}"
        raise errors.InputError("pattern", f"found {pattern!r}, {reason}") from None
    if not groups:
        reason = f"found {pattern!r}, expected named groups such as (?P<user>\\S+)"
        raise errors.InputError("pattern", reason)


def schema_value(kind: str, text: str, zone: str | None) -> Value:
    """Returns a value of the type in an XML Schema; the text itself if it is not of that type."""
    if kind == "bool":
        return {"1": True, "true": True, "0": False, "false": False}.get(text, text)
    if kind == "number":
        if text in _SCHEMA_NUMBERS:
            return _SCHEMA_NUMBERS[text]
        number = _number(_PLUS_AND_ZEROS.sub(r"\1", text))
        return text if number is None else number
    if kind == "time":
        try:
            return time_value(text, zone=zone)
        except ContradaError:
            return text
    return text


_SCHEMA_NUMBERS: Final = {"NaN": math.nan, "INF": math.inf, "-INF": -math.inf}
_PLUS_AND_ZEROS: Final = re.compile(r"^\+?(-?)0*(?=[0-9])")


def _number(text: str) -> int | float | None:
    """Returns the number that a literal spells; None for other texts or out of range."""
    literal = _LITERAL.fullmatch(text)
    if literal is None:
        return None
    if literal.group(1) is None and literal.group(2) is None:
        if len(text) > _INTEGER_CHARS_MAX:
            return None
        integer = int(text)
        return integer if INT_MIN <= integer <= INT_MAX else None
    number = float(text)
    return number if math.isfinite(number) else None


_LIMITS: Final = FileLimits()
_DOCUMENT_LIMITS: Final = DocumentLimits()


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a source.

    `types` declares the type of attributes by name (`text`, `number`, `bool`, `time`, `epoch`,
    `epoch_ms`, `epoch_us`, or `time:` with a pattern of `strptime`). `absent` lists the texts
    that mean "no value". `entries` is the name of the XML element that makes one notification
    each. `add` gives constant attributes; they replace a record's own. `time` names the attribute
    with the time of the envelope. `marks` are the type marks of a typed publication, the most
    general first. `pattern` is the regular expression of the format `lines`. `drop` lists names
    in records that become no attributes, nor do those below them (`agent`: also `agent.id`);
    `rename` gives other names to attributes. Both apply first, so all other options use the new
    names; but a type may be declared for the former name, too. `zone` is the zone of times without
    one, such as `Europe/Rome`. `delimiter` and `quote` are the characters of CSV; with an empty
    quote no character quotes. `strategy` names repeated elements of a document
    (`contrada.integrations.documents.STRATEGIES`). For XML, `stylesheet` is an XSLT that is applied
    first, and `schema` the DTD, XML Schema or RELAX NG that documents must conform to; an XML
    Schema also declares types. `limits` and `document_limits` bound the readers. Readers add to
    `met` the names that records have, but perhaps not as attributes: dropped and empty ones. Copies
    by `replace` share it.

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
    pattern: str | None = None
    delimiter: str = ","
    quote: str = '"'
    strategy: str = "multi"
    stylesheet: bytes | None = None
    schema: bytes | None = None
    limits: FileLimits = _LIMITS
    document_limits: DocumentLimits = _DOCUMENT_LIMITS
    met: set[str] = field(default_factory=set, compare=False, repr=False)

    def __post_init__(self) -> None:
        for what, sign, sizes in (
            ("delimiter", self.delimiter, {1}),
            ("quote", self.quote, {0, 1}),
        ):
            if len(sign) not in sizes or not sign.isascii() or sign in ("\n", "\r", "\0"):
                raise errors.InputError(what, f"found {sign!r}, expected one ASCII character")
        if self.delimiter == self.quote:
            raise errors.InputError("quote", f"found {self.quote!r}, which is the delimiter too")
        if self.strategy not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise errors.InputError("strategy", f"found {self.strategy!r}, expected one of {known}")
        if self.strategy == "xslt" and self.stylesheet is None:
            raise errors.InputError("strategy", "xslt needs a stylesheet")
        checks: tuple[tuple[Callable[[Any], object], object], ...] = (
            (compiled, self.stylesheet),
            (validator_of, self.schema),
            (zone_of, self.zone),
            (check_groups, self.pattern),
        )
        for check, given in checks:
            if given is not None:
                check(given)
        for name, type_name in self.types.items():
            if type_name.startswith(PATTERN_PREFIX):
                check_pattern(name, type_name)
            elif type_name not in CONVERTERS:
                expected = f"expected one of {', '.join(CONVERTERS)}"
                reason = f"attribute {name!r}: found {type_name!r}, {expected}"
                raise errors.InputError("types", reason)
        for name in (*self.types, *self.rename.values()):
            check_user_name(name)
        object.__setattr__(self, "types", self._types_by_new_names())
        if self.time is not None:
            check_user_name(self.time)
            if self.time in self._former_names() - self.add.keys():
                reason = f"found {self.time!r}, expected its new name {self.rename[self.time]!r}"
                raise errors.InputError("time", reason)
        # Checks the attributes that every record gets.
        Notification.with_marks(self.add, self.marks)
        if self.time in self.add:
            self.envelope(self.add)

    @property
    def is_flat(self) -> bool:
        """Whether documents are read unchanged, with several values for repeated elements."""
        return base_of(self.strategy) == "multi" and self.stylesheet is None and self.schema is None

    @property
    def is_multi(self) -> bool:
        """Whether JSON objects are read unchanged, with several values for repeated names."""
        return base_of(self.strategy) == "multi" and not self.splits

    @property
    def splits(self) -> bool:
        """Whether a document is split at elements that it determines itself."""
        return self.strategy == "split" and not self.entries

    @property
    def is_renaming(self) -> bool:
        """Whether attributes may have other names than the parts of records."""
        return bool(self.rename or self.drop)

    def attribute(self, name: str) -> str | None:
        """Returns the attribute of a part of a record, None for a dropped part."""
        if not self.is_renaming:
            return name
        return None if self.is_dropped(name) else self.rename.get(name, name)

    def is_dropped(self, name: str) -> bool:
        """Whether a part of a record becomes no attribute."""
        found = self._drops_of(name)
        self.met.update(found)
        return bool(found)

    def _drops_of(self, name: str) -> list[str]:
        """Returns the names to drop that are this name, or above it."""
        return [each for each in self.drop if name == each or name.startswith(f"{each}.")]

    @property
    def stamp(self) -> str | None:
        """The attribute of each record with the time of the envelope."""
        return None if self.time in self.add else self.time

    def names_expected(self) -> set[str]:
        """Returns attributes, and names to drop. One that no record has is likely misspelled."""
        named = {*self.types, *self.rename.values()} | ({self.time} if self.time else set())
        # Few records have those of envelopes; those below others are dropped with them.
        dropped = {name for name in self.drop if self._drops_of(name) == [name]}
        return (named - self.add.keys() - self._former_names()) | dropped.difference(ENVELOPE_NAMES)

    def lack_of(self, name: str, known: Iterable[str] = ()) -> str:
        """Returns a sentence about a name in the options that no record has, with similar names of
        the `known` ones.
        """
        # Not above: only a mistake needs it.
        from contrada.model.algebra.match_explanation import similar_names

        former = [each for each, new in self.rename.items() if new == name]
        near = " or ".join(map(repr, similar_names((*former, name)[0], known)))
        there = f", there is {near}" if near else ""
        if former:
            found = " or ".join(map(repr, former))
            return f"no record has {found}, which an option renames to {name!r}{there}"
        return f"no record has {name!r}, which an option names{there}"

    def _former_names(self) -> set[str]:
        """Returns the names that no attribute has any more."""
        return self.rename.keys() - {*self.rename.values()}

    def _types_by_new_names(self) -> Mapping[str, str]:
        """Returns the types, those of former names also by the new ones. Raises InputError for an
        attribute with two types.
        """
        types, former_names = dict(self.types), self._former_names()
        for former, name in self.rename.items():
            kind = self.types.get(former)
            if kind is None or former not in former_names:
                continue
            if types.setdefault(name, kind) != kind:
                found = f"found {types[name]!r}, and {kind!r} by its former name {former!r}"
                raise errors.InputError("types", f"attribute {name!r}: {found}; expected one type")
        return types

    def names_checked(self) -> set[str]:
        """Returns the attributes that can make a record bad by their values."""
        typed = {name for name, kind in self.types.items() if kind != "text"}
        return typed if self.stamp is None else {*typed, self.stamp}

    def converter(self, name: str) -> Converter:
        """Returns the converter of an attribute's cells."""
        return untyped_value if name not in self.types else self.typed(name)

    def typed(self, name: str) -> Converter:
        """Returns the converter to an attribute's declared type, text by default."""
        declared = self.types.get(name, "text")
        if declared == "time" and self.zone is not None:
            return partial(time_value, zone=self.zone)
        if declared.startswith(PATTERN_PREFIX):
            pattern = declared.removeprefix(PATTERN_PREFIX)
            return partial(pattern_value, pattern=pattern, zone=self.zone)
        return CONVERTERS[declared]

    def takes_numbers(self, name: str) -> bool:
        """Whether numbers, too, are converted to the attribute's type."""
        return self.types.get(name) in EPOCHS

    def is_absent(self, text: str) -> bool:
        """Whether a cell holds no value."""
        return not text or text in self.absent

    def notification(
        self, found: Mapping[str, Value | list[Value]], *, body: bytes = b"", content_type: str = ""
    ) -> Notification:
        """Returns the notification of a record. Raises InvalidNotificationError for an invalid name
        or value, and if the attribute `time` has no single time.
        """
        attributes: Any = {**found, **self.add} if self.add else found
        envelope = UNSTAMPED if self.time is None else self.envelope(attributes)
        if self.marks:
            parts: Any = {"body": body, "content_type": content_type, "envelope": envelope}
            return Notification.with_marks(attributes, self.marks, **parts)
        return Notification(attributes, body=body, content_type=content_type, envelope=envelope)

    def envelope(self, attributes: Mapping[str, object]) -> Envelope:
        """Returns the envelope of a record. Raises InvalidNotificationError as `notification`."""
        if self.time is None:
            return UNSTAMPED
        stamp = attributes.get(self.time)
        if isinstance(stamp, list) and len(stamp) == 1:
            stamp = stamp[0]
        if not isinstance(stamp, datetime):
            reason = NOT_A_TIME if self.time in attributes else NO_TIME
            raise errors.InvalidNotificationError(self.time, stamp, reason)
        return Envelope(time_us=time_us_of(stamp))


def plain_format(format_name: str, options: ReadOptions) -> tuple[str, ReadOptions]:
    """Returns one of the formats csv, json and xml, or that of a log, with the options that the
    given name implies. `tsv` is CSV separated by tabs; `jsonl` is JSON lines, whatever `entries`
    is. Raises InputError for a stylesheet or a schema and another format than XML, and for a
    pattern and another format than `lines`, which needs one.
    """
    if format_name == "lines" and options.pattern is None:
        raise errors.InputError("pattern", "the format lines needs one, with named groups")
    if format_name != "lines" and options.pattern is not None:
        reason = f"it is for the format lines, and the format is {format_name}"
        raise errors.InputError("pattern", reason)
    for name in ("stylesheet", "schema"):
        if format_name != "xml" and getattr(options, name) is not None:
            raise errors.InputError(name, f"it is for XML, and the format is {format_name}")
    if format_name == "jsonl":
        return "json", replace(options, entries=None)
    if format_name != "tsv":
        return format_name, options
    has_own = options.delimiter != ","
    return "csv", options if has_own else replace(options, delimiter="\t")


class AllowedNames:
    """Checks the names of many records of a source."""

    def __init__(self, options: ReadOptions) -> None:
        self._good: set[str] = set()
        self._count_max = ATTRIBUTES_MAX - len(options.add)

    def allow(self, names: Iterable[str], most: int) -> bool:
        """Whether records can have attributes of these names, at most `most` in one record."""
        if not self._good.issuperset(names):
            if len(self._good) > NAMES_KEPT_MAX:
                self._good.clear()
            try:
                self._good.update(map(check_user_name, names))
            except errors.InvalidNameError:
                return False
        return most <= self._count_max


class SlotReader:
    """Converts named slots of XML and JSON to the values of attributes. Options for a plain name
    (`types`, `drop`, types of a schema) apply to all names generated from it. XML texts without a
    type are inferred like cells; JSON texts stay texts.
    """

    def __init__(self, options: ReadOptions, *, is_json: bool = False) -> None:
        """Raises InputError for a schema that is none."""
        self._options = options
        self._is_json = is_json
        self._types = None if options.schema is None else SchemaTypes(options.schema)
        self._expected = options.names_expected()
        self._converters: dict[tuple[str, str], Converter] = {}

    def of(self, names: Iterable[Named]) -> dict[str, Any]:
        """Returns the attributes. Raises InvalidNotificationError for a value not of its type.

        LimitError and InvalidNotificationError with more names or values than a notification has.
        """
        options = self._options
        found: dict[str, list[Value]] = {}
        for name, slot in names:
            value = slot.value
            if self._is_dropped(name, slot.plain):
                continue
            name = options.rename.get(name, name)
            convert = self.converter(name, slot.plain)
            try:
                if isinstance(value, str):
                    if value in options.absent or not (value or self._is_json):
                        continue
                    value = convert(value)
                elif type(value) in (int, float):
                    typed = name if name in options.types else slot.plain
                    value = options.typed(typed)(value) if options.takes_numbers(typed) else value
            except ContradaError as error:
                raise InvalidNotificationError(name, value, str(error)) from None
            several = found.setdefault(name, [])
            several.append(value)
            if len(found) > ATTRIBUTES_MAX:
                raise LimitError("ATTRIBUTES_MAX", ATTRIBUTES_MAX, len(found))
            if len(several) > VALUES_MAX:
                reason = f"more than VALUES_MAX = {VALUES_MAX} values"
                raise InvalidNotificationError(name, several, reason)
        return {name: each[0] if len(each) == 1 else each for name, each in found.items()}

    def final_attributes(self, found: Mapping[str, Any], names: Iterable[Named]) -> dict[str, Any]:
        """Returns the final attributes, with DROPPED for those that must not be published."""
        dropped = {name: DROPPED for name, slot in names if self._is_dropped(name, slot.plain)}
        return {**found, **self._options.add, **dropped}

    def _is_dropped(self, name: str, plain: str) -> bool:
        options = self._options
        return bool(options.drop) and (options.is_dropped(name) or options.is_dropped(plain))

    def converter(self, name: str, plain: str) -> Converter:
        """Returns the converter of an attribute's texts, given its plain name. Both are `met`."""
        key, options = (name, plain), self._options
        if (known := self._converters.get(key)) is not None:
            return known
        if len(self._converters) > NAMES_KEPT_MAX:
            self._converters.clear()
        options.met.update(self._expected.intersection(key))
        kind = None if self._types is None else self._types.kind(plain)
        declared = next((each for each in key if each in options.types), None)
        convert: Converter = str if self._is_json else untyped_value
        if declared is not None:
            convert = options.typed(declared)
        elif kind is not None:
            convert = partial(schema_value, kind, zone=options.zone)
        self._converters[key] = convert
        return convert
