"""The options for reading records, the `ReadOptions` of their values, and hints."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from contrada.cli.literals import literal, named_text
from contrada.cli.shared_options import FILE
from contrada.integrations.documents.naming_strategies import STRATEGIES, is_escaping
from contrada.integrations.files import BadRecord, ReadOptions
from contrada.integrations.files.read_options import CONVERTERS, TIME_WITH_ZONE
from contrada.model import Value
from contrada.model.domains.values import ENVELOPE_NAMES, RESERVED
from contrada.service.settings import read_bytes

C = TypeVar("C", bound=Callable[..., Any])

_TYPES: Final = ", ".join(CONVERTERS)

_NAMES: Final = (
    click.option("--types", metavar="NAME=TYPE,…", help=f"Types of attributes: {_TYPES}."),
    click.option("--rename", metavar="NAME=NEW,…", help="New names of attributes."),
    click.option(
        "--drop", metavar="NAME,…", help="Attributes to leave out, with those below them."
    ),
    click.option("--zone", metavar="ZONE", help="Zone of times without one, such as Europe/Rome."),
)


_CELLS: Final = (
    click.option("--delimiter", default=",", help="CSV: delimiter of cells."),
    click.option("--quote", default='"', help="CSV: quote character; may be empty."),
    click.option("--absent", metavar="TEXT", multiple=True, help="Text that means no value."),
)


def cell_options(command: C) -> C:
    """Adds the options for rows of cells."""
    for option in reversed(_CELLS):
        command = option(command)
    return command


def naming_options(command: C) -> C:
    """Adds the options for objects."""
    for option in reversed(_NAMES):
        command = option(command)
    return command


_DOCUMENTS: Final = (
    click.option(
        "--strategy",
        type=click.Choice(STRATEGIES),
        default="multi",
        help="XML, JSON: treatment of repeated elements.",
    ),
    click.option("--stylesheet", metavar="FILE", type=FILE, help="XML: XSLT to apply first."),
    click.option(
        "--schema",
        metavar="FILE",
        type=FILE,
        help="XML: DTD, XML Schema or RELAX NG of the document.",
    ),
)


def document_options(command: C) -> C:
    """Adds the options for documents."""
    for option in reversed(_DOCUMENTS):
        command = option(command)
    return command


def reading_of(
    types: str | None,
    rename: str | None,
    drop: str | None,
    zone: str | None,
    absent: Iterable[str] = (),
    stylesheet: Path | None = None,
    schema: Path | None = None,
    **others: Any,
) -> ReadOptions:
    """Returns the `ReadOptions` of the options. Raises InputError and InvalidNameError."""
    return ReadOptions(
        types=_pairs(_listed(types)),
        rename=_pairs(_listed(rename), empty=True),
        drop=frozenset(_listed(drop)),
        zone=zone,
        absent=frozenset(absent),
        stylesheet=None if stylesheet is None else read_bytes(stylesheet),
        schema=None if schema is None else read_bytes(schema),
        **others,
    )


def check_named(reading: ReadOptions, names: bool) -> None:
    """Raises UsageError for --names with a strategy whose names do not identify a document."""
    if names and not is_escaping(reading.strategy):
        raise click.UsageError("--names is for --strategy index, pattern or daemon")


def constants(texts: Iterable[str]) -> dict[str, Value]:
    """Returns the attributes of `name=value` options."""
    return {name: literal(value) for name, value in _pairs(texts).items()}


def hint_for(bad: BadRecord) -> str:
    """Returns the option that would make a bad record readable, or an empty text."""
    if bad.reason.endswith(RESERVED):
        dropped = ",".join(ENVELOPE_NAMES)
        return f"; --rename @id=NAME names one anew, --drop {dropped} leaves them out"
    if bad.reason.endswith(("without a name, expected one", "bytes, this one 0")):
        return "; --rename =NAME gives it one"
    if bad.reason.endswith(TIME_WITH_ZONE):
        return "; --zone gives the zone of times without one"
    if bad.text.strip() == "{":
        return "; each line is one object: `jq -c .` writes them so"
    return ""


def _listed(text: str | None) -> list[str]:
    return [each.strip() for each in text.split(",")] if text else []


def _pairs(texts: Iterable[str], *, empty: bool = False) -> dict[str, str]:
    return dict(named_text(text.strip(), "option", empty=empty) for text in texts)
