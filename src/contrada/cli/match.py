"""`contrada match`: match records of files against subscriptions, without Spark."""

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table

from contrada.cli import shared_options as options
from contrada.cli.lazy_group import EXIT_BAD_INPUT, EXIT_UNMET
from contrada.cli.read_flags import (
    cell_options,
    document_options,
    hint_for,
    naming_options,
    reading_of,
    stamp_options,
)
from contrada.cli.table_output import progress_of, table
from contrada.errors import InputError
from contrada.integrations.files import (
    FORMATS,
    BadRecord,
    Matcher,
    Outcomes,
    ReadOptions,
    check_name_of,
    format_of,
    plain_attributes,
    plain_time,
)
from contrada.integrations.files.json_objects import WHOLE_DOCUMENT
from contrada.integrations.files.record_matcher import RecordFilter
from contrada.integrations.files.subscription_files import (
    DIALECTS,
    STANDARD_INPUT,
    about_of,
    load_rules,
    load_subscriptions,
)
from contrada.model.rule import Rule

PLACES = click.Path(exists=True, path_type=Path, allow_dash=True)
INPUT = click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True)

_READS_ARRAY: Final = {"json": "--entries . reads", "jsonl": "--format json --entries . reads"}
"""Options that read a JSON array, for the formats of lines."""

ERRORS_SHOWN_MAX: Final = 20
"""Unreadable records that are reported one by one. Beyond it: they are only counted."""


@click.command()
@click.argument("subscriptions", type=PLACES)
@click.argument("files", type=INPUT, nargs=-1, required=True)
@options.typed(
    "--from dialect", click.Choice([*DIALECTS]), None, "SUBSCRIPTIONS are rules of this dialect."
)
@options.typed(
    "--format format_name", click.Choice(FORMATS), None, "Format; default: by the suffix."
)
@options.text(
    "--entries", "NAME", "XML: elements NAME; JSON: array NAME, or `.` for the whole document."
)
@cell_options
@naming_options
@document_options
@stamp_options
@options.repeated("--mark", "TYPE", "Type mark; most general first.")
@click.option("--output", type=click.File("w"), default="-", help="File for the matches.")
@options.flag("--count", "Print only a table of matches per subscription.")
@options.flag("--json as_json", "With --count: as JSON.")
@options.extension_option
def match(
    subscriptions: Path,
    files: tuple[Path, ...],
    dialect: str | None,
    format_name: str | None,
    mark: tuple[str, ...],
    output: IO[str],
    count: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Match the records of FILES against a file of SUBSCRIPTIONS.

    A subscription is a line `name: filter`; lines that begin with # are comments. A record is a row
    of CSV (csv, tsv), a line of JSON (json, jsonl, ndjson), an XML document or, with --entries, one
    repeated element of it, or of an array in a JSON document (json, and geojson, which needs it). A
    suffix .gz is unpacked. The file `-` is standard input, and needs --format. Each match is one
    line of JSON.

    --strategy chooses the treatment of repeated elements of a document: docs/documents.md.

    With --from, SUBSCRIPTIONS is a file of rules as for `contrada translate`, or a directory of
    such files. They are matched exactly, including residues, and each match has the title, author,
    level and tags of its rule.

    Unreadable records and rules are reported on standard error, with place and reason, the first
    ones one by one; the others are matched. The exit status is then 2. It is 3 if a name in an
    option is not in the files.

    \b
    contrada match desk.filters flights.csv --types tailnum=text,time_hour=time --absent NA
    contrada match alerts.filters us.atom --entries entry --count
    contrada match --from sigma rules/windows events.jsonl
    """  # noqa: D301 - click reads the escape
    if as_json and not count:
        raise click.UsageError("--json is for --count; matches are JSON always")
    reading = reading_of(marks=mark, **given)
    with _uncollected():
        wanted, refused = _wanted(subscriptions, dialect)
        inputs = [_input(path, format_name, reading) for path in files]
        matcher = Matcher(wanted.values(), reading)
    report = _MatchReport(wanted, output, quiet=count)
    report.take_all(inputs, matcher)
    report.unmet += [
        f"{source} is a JSON array; {_READS_ARRAY[format_]} its objects"
        for _, format_, source in inputs
        if source in report.arrays and format_ in _READS_ARRAY and reading.entries != WHOLE_DOCUMENT
    ]
    if reading.entries:
        report.unmet += [f"{each}: found no entry {reading.entries!r}" for each in report.empty]
    if report.read:
        report.unmet += [
            f"no record has {name!r}, which an option names" for name in sorted(matcher.unmet)
        ]
    report.end(as_json=as_json)
    if report.bad or refused or report.unmet:
        raise click.exceptions.Exit(EXIT_BAD_INPUT if report.bad or refused else EXIT_UNMET)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pauses the garbage collector: its passes over the new objects would free nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _input(path: Path, format_name: str | None, reading: ReadOptions) -> tuple[Path, str, str]:
    """Returns the path, the format and the displayed name of a file."""
    check_name_of(path)
    if str(path) != STANDARD_INPUT:
        is_geojson = path.name.lower().removesuffix(".gz").endswith(".geojson")
        if is_geojson and format_name is None and not reading.entries:
            reason = (
                "its records are in an array: --entries features reads them, --format jsonl lines"
            )
            raise InputError(str(path), reason)
        return path, format_name or format_of(path), str(path)
    if format_name is None:
        raise click.UsageError("standard input needs --format")
    return Path("/dev/stdin"), format_name, "standard input"


def _wanted(place: Path, dialect: str | None) -> tuple[Mapping[str, RecordFilter], bool]:
    """Returns the subscriptions by name, and whether rules were refused; reports the refusals."""
    if dialect is None:
        return load_subscriptions(place), False
    found, refused = load_rules(place, dialect)
    for each in refused:
        click.echo(each, err=True)
    if refused:
        click.echo(f"{len(refused)} refused of {len(refused) + len(found)} rules", err=True)
    return found, bool(refused)


class _MatchReport:
    """Writes and counts the matches."""

    def __init__(self, wanted: Mapping[str, RecordFilter], output: IO[str], *, quiet: bool) -> None:
        self.read = 0
        self.bad = 0
        self.matches: Counter[str] = Counter()
        self.empty: list[str] = []  # inputs without a record
        self.arrays: set[str] = set()  # inputs that are JSON arrays in a format of lines
        self.unmet: list[str] = []
        self._hints: set[str] = set()  # each is given once
        self._wanted = wanted
        self._names = list(wanted)
        self._output = output
        self._quiet = quiet

    def take_all(self, inputs: Iterable[tuple[Path, str, str]], matcher: Matcher) -> None:
        """Matches all records of the inputs, and shows the progress."""
        self._output.write("")  # Creates the file, also without a match.
        with progress_of("records") as show:
            for path, format_, source in inputs:
                before = self.read + self.bad
                for each in matcher.file(path, format_, source):
                    self.take(each)
                    show(self.read + self.bad, each.source)
                if self.read + self.bad == before:
                    self.empty.append(source)

    def end(self, *, as_json: bool) -> None:
        """Writes the counts, and reports the faults."""
        if self._quiet and as_json:
            self._output.write(self.counts() + "\n")
        elif self._quiet:
            Console(file=self._output, markup=False, emoji=False).print(self.table())
        if self.bad > ERRORS_SHOWN_MAX:
            click.echo(f"and {self.bad - ERRORS_SHOWN_MAX} more", err=True)
        if self.bad:
            click.echo(f"{self.bad} bad of {self.read + self.bad} records", err=True)
        for each in self.unmet:
            click.echo(f"contrada: error: {each}", err=True)

    def take(self, outcomes: Outcomes) -> None:
        """Adds the outcomes of some records."""
        self.read += outcomes.read
        for each in outcomes.records:
            if isinstance(each, BadRecord):
                self.bad += 1
                if each.line == 1 and each.text.lstrip().startswith("["):
                    self.arrays.add(each.source)
                if self.bad <= ERRORS_SHOWN_MAX:
                    hint = hint_for(each)
                    hint = "" if hint in self._hints else hint
                    self._hints.add(hint)
                    click.echo(f"{each.error()}{hint}", err=True)
                continue
            for position in each.positions:
                name, record = self._names[position], each.record
                self.matches[name] += 1
                if self._quiet:
                    continue
                match_: dict[str, Any] = {
                    "subscription": name,
                    "file": record.source,
                    "record": record.number,
                    "time": plain_time(record.notification),
                    "attributes": plain_attributes(record.notification),
                }
                if isinstance(rule := self._wanted[name], Rule) and rule.about:
                    match_["rule"] = about_of(rule)
                self._output.write(msgspec.json.encode(match_).decode() + "\n")
        if outcomes.records and not self._quiet:
            self._output.flush()  # A reader of the pipe gets the first matches early.

    def counts(self) -> str:
        """Returns the counts as JSON."""
        counted = {name: self.matches[name] for name in self._names}
        counts = {"read": self.read, "bad": self.bad, "matches": counted}
        return msgspec.json.encode(counts).decode()

    def table(self) -> Table:
        """Returns a table of the matches of each subscription."""
        made = table("subscription", "filter", right=("matches",), title=f"{self.read} records")
        for name, wish in self._wanted.items():
            shown = str(wish.filters if isinstance(wish, Rule) else wish)
            made.add_row(name, shown, str(self.matches[name]))
        return made
