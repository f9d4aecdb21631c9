"""Options and arguments that are attributes, or that give the `ReadOptions` of records; and hints.

A value of `name=value` is parsed as in a filter if possible (`12.5`, `true`, `null`, `"12"`,
`x"0aff"`, `@2026-11-20T09:30:00Z`), and is plain text otherwise.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from contrada.cli import shared_options as options
from contrada.errors import ContradaError, InputError
from contrada.integrations.documents.naming_strategies import STRATEGIES, is_escaping
from contrada.integrations.files import BadRecord, ReadOptions, Record
from contrada.integrations.files.read_options import CONVERTERS, NOT_A_TIME
from contrada.integrations.files.time_formats import TIME_WITH_ZONE
from contrada.model import Filter, Notification, Value
from contrada.model.domains.values import ENVELOPE_NAMES, RESERVED, value_of
from contrada.service.settings import read_bytes

BAD_SHOWN_MAX: Final = 20
"""Unreadable records that are reported one by one. Beyond it: they are only counted."""

_DATED: Final = re.compile(r"@\d{4}-\d")
_TYPES: Final = ", ".join(CONVERTERS)

naming_options: Final = options.joined(
    options.repeated("--types", "NAME=TYPE,…", f"Types of attributes: {_TYPES}, time:PATTERN."),
    options.repeated("--rename", "NAME=NEW,…", "New names of attributes."),
    options.repeated("--drop", "NAME,…", "Attributes to leave out, with those below them."),
    options.text("--zone", "ZONE", "Zone of times without one, such as Europe/Rome."),
)
"""The options for objects."""

absent_option: Final = options.repeated("--absent", "TEXT", "Text that means no value.")

cell_options: Final = options.joined(
    click.option("--delimiter", default=",", help="CSV: delimiter of cells."),
    click.option("--quote", default='"', help="CSV: quote character; may be empty."),
    absent_option,
)
"""The options for rows of cells."""

stamp_options: Final = options.joined(
    options.repeated("--add", "NAME=VALUE", "Constant attribute."),
    options.text("--time", "NAME", "Attribute with the time of the envelope."),
)

document_options: Final = options.joined(
    options.typed(
        "--strategy",
        click.Choice(STRATEGIES),
        None,
        "XML, JSON: treatment of repeated elements.",
        "multi",
    ),
    options.typed("--stylesheet", options.FILE, "FILE", "XML: XSLT to apply first."),
    options.typed(
        "--schema", options.FILE, "FILE", "XML: DTD, XML Schema or RELAX NG of the document."
    ),
)
"""The options for documents."""

entry_options = options.joined(absent_option, stamp_options, document_options, naming_options)
"""The options for entries of documents."""


def reading_of(
    types: Iterable[str],
    rename: Iterable[str],
    drop: Iterable[str],
    absent: Iterable[str] = (),
    add: Iterable[str] = (),
    stylesheet: Path | None = None,
    schema: Path | None = None,
    **others: Any,
) -> ReadOptions:
    """Returns the `ReadOptions` of the options. Raises InputError and InvalidNameError."""
    return ReadOptions(
        types=_pairs(_listed(types), "--types"),
        rename=_pairs(_listed(rename), "--rename", empty=True),
        drop=frozenset(_listed(drop)),
        absent=frozenset(absent),
        add={name: literal(value) for name, value in _pairs(add, "--add").items()},
        stylesheet=None if stylesheet is None else read_bytes(stylesheet),
        schema=None if schema is None else read_bytes(schema),
        **others,
    )


class SoughtNames:
    """The names in options that no record so far had."""

    def __init__(self, options: ReadOptions) -> None:
        self._options, self._unmet = options, options.names_expected()
        self._known: Notification | None = None

    def noted(self, record: Record | BadRecord) -> Record | BadRecord:
        """Returns a record, without its names from now on."""
        if isinstance(record, Record):
            self._known = record.notification
            if self._unmet:
                self._unmet.difference_update(record.notification)
        return record

    def report(self) -> None:
        """Writes a line to standard error for each of these names, if there was a record."""
        if self._known is not None:
            for name in sorted(self._unmet - self._options.met):
                click.echo(self._options.lack_of(name, self._known), err=True)


def check_named(reading: ReadOptions, names: bool) -> None:
    """Raises UsageError for --names with a strategy whose names do not identify a document."""
    if names and not is_escaping(reading.strategy):
        raise click.UsageError("--names is for --strategy index, pattern or daemon")


def hint_for(bad: BadRecord) -> str:
    """Returns the option that would make a bad record readable, or an empty text."""
    if bad.reason.endswith(RESERVED):
        dropped = ",".join(ENVELOPE_NAMES)
        return f"; --rename @id=NAME names one anew, --drop {dropped} leaves them out"
    if bad.reason.endswith(("without a name, expected one", "bytes, this one 0")):
        return "; --rename =NAME gives it one"
    if bad.reason.endswith(TIME_WITH_ZONE):
        return "; --zone gives the zone of times without one"
    if bad.reason.endswith(NOT_A_TIME):
        return "; --types NAME=time does so"
    if bad.text.strip() == "{":
        return "; each line is one object: `jq -c .` writes them so"
    return ""


def _listed(texts: Iterable[str]) -> list[str]:
    return [each.strip() for text in texts if text for each in text.split(",")]


def _pairs(texts: Iterable[str], option: str, *, empty: bool = False) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, value = named_text(text.strip(), option, empty=empty)
        if found.setdefault(name, value) != value:
            raise InputError(option, f"found {name!r} twice, as {found[name]!r} and {value!r}")
    return found


def literal(text: str) -> Value:
    """Returns the value of a literal, or the text. Raises InputError for a malformed time."""
    if "\n" in text:
        return text
    try:
        # In both places at once: a text longer than one literal fits at most one of them. The
        # line break ends a comment.
        value_set = Filter(f"value in ({text}) and value = {text}").sets["value"]
    except ContradaError:
        if _DATED.match(text):
            reason = (
                f"found {text!r}, expected a time as @2026-11-20T09:30:00Z, or a text in quotes"
            )
            raise InputError("argument", reason) from None
        return text
    key = value_set.some_key()
    return text if key is None else value_of(key)


def named_text(pair: str, source: str, *, empty: bool = False) -> tuple[str, str]:
    """Splits `NAME=VALUE`; with `empty` the name may be. Raises InputError with its place."""
    name, equals, text = pair.partition("=")
    if not equals or not (name or empty):
        raise InputError(source, f"found {pair!r}, expected NAME=VALUE")
    return name, text


def attributes_of(pairs: Iterable[str]) -> dict[str, Value | list[Value]]:
    """Returns the attributes of `name=value` arguments. Raises InputError for other text."""
    found: dict[str, list[Value]] = {}
    for pair in pairs:
        if pair.startswith("{") and "=" not in pair:
            reason = f"found {pair!r}, expected NAME=VALUE; `pub --json -` reads lines of JSON"
            raise InputError("argument", reason)
        name, text = named_text(pair, "argument")
        found.setdefault(name, []).append(literal(text))
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
