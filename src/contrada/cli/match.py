"""`contrada match`: which records of some files match which subscriptions. Needs no Spark."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final, cast

import click
import msgspec
from rich.console import Console
from rich.table import Table

from contrada.cli.extension import extension_option
from contrada.cli.lazy import EXIT_BAD_INPUT, EXIT_UNMET
from contrada.cli.reading import constants, naming_options, reading_of
from contrada.cli.tables import progress_of
from contrada.records import (
    FORMATS,
    BadRecord,
    Matcher,
    Outcomes,
    Record,
    Subscriptions,
    check_name_of,
    format_of,
    plain_attributes,
    plain_time,
)
from contrada.records.subscriptions import load_subscriptions

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
INPUT = click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True)

STANDARD_INPUT: Final = "-"

ERRORS_SHOWN_MAX: Final = 20
"""Records that cannot be read and are told of one by one. Beyond it: they are only counted."""


@click.command()
@click.argument("subscriptions", type=FILE)
@click.argument("files", type=INPUT, nargs=-1, required=True)
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="Not by the suffix.")
@click.option(
    "--entries", metavar="NAME", help="XML: the elements NAME; JSON: the array NAME, `.` all."
)
@click.option("--delimiter", default=",", show_default=True, help="CSV: what parts cells.")
@click.option("--quote", default='"', show_default=True, help="CSV: around cells; may be empty.")
@naming_options
@click.option("--absent", metavar="TEXT", multiple=True, help="A text that means no value.")
@click.option("--add", metavar="NAME=VALUE", multiple=True, help="A constant attribute.")
@click.option("--time", metavar="NAME", help="The attribute whose time stamps the envelope.")
@click.option("--mark", metavar="TYPE", multiple=True, help="A type mark, the most general first.")
@click.option("--output", type=click.File("w"), default="-", help="Where the matches go.")
@click.option("--count", is_flag=True, help="Only a table of matches per subscription.")
@click.option("--json", "as_json", is_flag=True, help="With --count: as JSON.")
@extension_option
def match(
    subscriptions: Path,
    files: tuple[Path, ...],
    format_name: str | None,
    absent: tuple[str, ...],
    add: tuple[str, ...],
    mark: tuple[str, ...],
    output: IO[str],
    count: bool,
    as_json: bool,
    **options: str | None,
) -> None:
    """Match the records of FILES against a file of SUBSCRIPTIONS.

    A subscription is a line `name: filter`; lines that begin with # are comments. A record is
    a row of CSV (csv, tsv), a line of JSON (json, jsonl, ndjson), an XML document or, with
    --entries, one repeated element of it, or of an array in a JSON document (json, geojson). A
    suffix .gz is unpacked. The file `-` is standard input, and needs --format. Each match is
    written as one line of JSON.

    Records that cannot be read are told on standard error, with place and reason, the first of
    them one by one; the others are matched all the same. The exit status is then 2. It is 3 where
    an option names what is nowhere in the files.

    \b
    contrada match desk.filters flights.csv --types tailnum=text,time_hour=time --absent NA
    contrada match alerts.filters us.atom --entries entry --count
    """  # noqa: D301 - click reads the escape
    if as_json and not count:
        raise click.UsageError("--json is for --count; matches are JSON always")
    reading = reading_of(
        absent=frozenset(absent), add=constants(add), marks=mark, **cast(Any, options)
    )
    wanted = load_subscriptions(subscriptions)
    for path in files:
        check_name_of(path)
    inputs = [_input(path, format_name) for path in files]
    matcher = Matcher(wanted.values(), reading)
    output.write("")  # The file is opened by that, also where nothing will match.
    report = _MatchReport(list(wanted), output, quiet=count)
    unmet: list[str] = []
    with progress_of("records") as told:
        for path, format_, source in inputs:
            before = report.read + report.bad
            for each in matcher.file(path, format_, source):
                report.take(each)
                told(report.read + report.bad, each.source)
            if reading.entries and report.read + report.bad == before:
                unmet.append(f"{source}: found no entry {reading.entries!r}")
    if count and as_json:
        output.write(report.counts() + "\n")
    elif count:
        Console(file=output, markup=False, emoji=False).print(report.table(wanted))
    if report.read:
        unmet += [
            f"no record has {name!r}, which an option names" for name in sorted(matcher.unmet)
        ]
    _end(report, unmet)


def _input(path: Path, format_name: str | None) -> tuple[Path, str, str]:
    """Where a file is read from, its format, and what its records call it."""
    if str(path) != STANDARD_INPUT:
        return path, format_name or format_of(path), str(path)
    if format_name is None:
        raise click.UsageError("standard input needs --format")
    return Path("/dev/stdin"), format_name, "standard input"


def _end(report: "_MatchReport", unmet: list[str]) -> None:
    """Tell what was not as it should be, and end with the status of that."""
    if report.bad > ERRORS_SHOWN_MAX:
        click.echo(f"and {report.bad - ERRORS_SHOWN_MAX} more", err=True)
    if report.bad:
        click.echo(f"{report.bad} bad of {report.read + report.bad} records", err=True)
    for each in unmet:
        click.echo(f"contrada: error: {each}", err=True)
    if report.bad or unmet:
        raise click.exceptions.Exit(EXIT_BAD_INPUT if report.bad else EXIT_UNMET)


class _MatchReport:
    """Writes the matches as they come and counts them."""

    def __init__(self, names: Sequence[str], output: IO[str], *, quiet: bool) -> None:
        self.read = 0
        self.bad = 0
        self.matches: Counter[str] = Counter()
        self._names = names
        self._output = output
        self._quiet = quiet

    def take(self, outcomes: Outcomes) -> None:
        """Some more records."""
        self.read += outcomes.read
        for told in outcomes.told:
            if isinstance(told, BadRecord):
                self.bad += 1
                if self.bad <= ERRORS_SHOWN_MAX:
                    click.echo(str(told.error()), err=True)
                continue
            for position in told.positions:
                self.matches[self._names[position]] += 1
                if not self._quiet:
                    self._output.write(_line(self._names[position], told.record))
        if outcomes.told and not self._quiet:
            self._output.flush()  # Whoever waits for the first matches gets them.

    def counts(self) -> str:
        """The same as JSON."""
        counted = {name: self.matches[name] for name in self._names}
        told = {"read": self.read, "bad": self.bad, "matches": counted}
        return msgspec.json.encode(told).decode()

    def table(self, wanted: Subscriptions) -> Table:
        """How often each subscription matched."""
        table = Table("subscription", "filter", title=f"{self.read} records")
        table.add_column("matches", justify="right")
        for name, wish in wanted.items():
            table.add_row(name, str(wish), str(self.matches[name]))
        return table


def _line(subscription: str, record: Record) -> str:
    match_ = {
        "subscription": subscription,
        "file": record.source,
        "record": record.number,
        "time": plain_time(record.notification),
        "attributes": plain_attributes(record.notification),
    }
    return msgspec.json.encode(match_).decode() + "\n"
