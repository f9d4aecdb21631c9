"""`contrada match`: which records of some files match which subscriptions. Needs no Spark."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from contrada.cli.extension import extension_option
from contrada.cli.lazy import EXIT_BAD_INPUT
from contrada.cli.literals import literal, named_text
from contrada.cli.rule_files import DIALECTS, PLACES, about_of, load_rules
from contrada.cli.tables import progress_of
from contrada.dialects.rules import Rule
from contrada.model import Value
from contrada.records import (
    FORMATS,
    BadRecord,
    Matcher,
    Outcomes,
    Reading,
    Record,
    check_name_of,
    format_of,
    plain_attributes,
    plain_time,
)
from contrada.records.matcher import Wish
from contrada.records.subscriptions import load_subscriptions

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("subscriptions", type=PLACES)
@click.argument("files", type=FILE, nargs=-1, required=True)
@click.option(
    "--from", "dialect", type=click.Choice([*DIALECTS]), help="SUBSCRIPTIONS are rules of it."
)
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="Not by the suffix.")
@click.option("--entries", metavar="NAME", help="XML: one notification per element NAME.")
@click.option("--types", metavar="NAME=TYPE,…", help="Types: text, number, bool, time.")
@click.option("--absent", metavar="TEXT", multiple=True, help="A text that means no value.")
@click.option("--add", metavar="NAME=VALUE", multiple=True, help="A constant attribute.")
@click.option("--time", metavar="NAME", help="The attribute whose time stamps the envelope.")
@click.option("--mark", metavar="TYPE", multiple=True, help="A type mark, the most general first.")
@click.option("--output", type=click.File("w"), default="-", help="Where the matches go.")
@click.option("--count", is_flag=True, help="Only a table of matches per subscription.")
@extension_option
def match(
    subscriptions: Path,
    files: tuple[Path, ...],
    dialect: str | None,
    format_name: str | None,
    entries: str | None,
    types: str | None,
    absent: tuple[str, ...],
    add: tuple[str, ...],
    time: str | None,
    mark: tuple[str, ...],
    output: IO[str],
    count: bool,
) -> None:
    """Match the records of FILES against a file of SUBSCRIPTIONS.

    A subscription is a line `name: filter`; lines that begin with # are comments. A record is
    a row of CSV (csv, csv.gz), a line of JSON (json, jsonl, ndjson), an XML document or, with
    --entries, one repeated element of it. Each match is written as one line of JSON.

    With --from, SUBSCRIPTIONS is a file of rules as for `contrada translate`, or a directory of
    such. They are matched exactly, also where no filter says them, and each match shows the title,
    author, level and tags that its rule has.

    Records and rules that cannot be read are listed on standard error, each with its place and
    reason; the others are matched all the same. The exit status is then 2.

    \b
    contrada match desk.filters flights.csv --types tailnum=text,time_hour=time --absent NA
    contrada match alerts.filters us.atom --entries entry --count
    contrada match --from sigma rules/windows events.jsonl
    """  # noqa: D301 - click reads the escape
    reading = Reading(
        types=_pairs(types.split(",") if types else ()),
        absent=frozenset(absent),
        entries=entries,
        add=_constants(add),
        time=time,
        marks=mark,
    )
    wanted, refused = _wanted(subscriptions, dialect)
    for path in files:
        check_name_of(path)
    formats = [format_name or format_of(path) for path in files]
    matcher = Matcher(wanted.values(), reading)
    outcomes = (
        each
        for path, format_ in zip(files, formats, strict=True)
        for each in matcher.file(path, format_, str(path))
    )
    report = _MatchReport(wanted, output, quiet=count)
    report.take_all(outcomes)
    if report.bad or refused:
        raise click.exceptions.Exit(EXIT_BAD_INPUT)


def _wanted(place: Path, dialect: str | None) -> tuple[Mapping[str, Wish], bool]:
    """What is asked for, by name; and whether some rules of it were refused, which is told."""
    if dialect is None:
        return load_subscriptions(place), False
    found, refused = load_rules(place, dialect)
    for each in refused:
        click.echo(each, err=True)
    if refused:
        click.echo(f"{len(refused)} refused of {len(refused) + len(found)} rules", err=True)
    return found, bool(refused)


class _MatchReport:
    """Writes the matches as they come and counts them."""

    def __init__(self, wanted: Mapping[str, Wish], output: IO[str], *, quiet: bool) -> None:
        self.read = 0
        self.bad = 0
        self.matches: Counter[str] = Counter()
        self._wanted = wanted
        self._names = list(wanted)
        self._output = output
        self._quiet = quiet

    def take_all(self, outcomes: Iterable[Outcomes]) -> None:
        """All records, with a word on how far that is; then what is to be said of them together."""
        self._output.write("")  # The file is opened by that, also where nothing will match.
        with progress_of("records") as told:
            for each in outcomes:
                self.take(each)
                told(self.read + self.bad, each.source)
        if self._quiet:
            Console(file=self._output, markup=False, emoji=False).print(self.table())
        if self.bad:
            click.echo(f"{self.bad} bad of {self.read + self.bad} records", err=True)

    def take(self, outcomes: Outcomes) -> None:
        """Some more records."""
        self.read += outcomes.read
        for told in outcomes.told:
            if isinstance(told, BadRecord):
                self.bad += 1
                click.echo(str(told.error()), err=True)
                continue
            for position in told.positions:
                name = self._names[position]
                self.matches[name] += 1
                if not self._quiet:
                    self._output.write(_line(name, self._wanted[name], told.record))

    def table(self) -> Table:
        """How often each subscription matched."""
        table = Table("subscription", "filter", title=f"{self.read} records")
        table.add_column("matches", justify="right")
        for name, wish in self._wanted.items():
            shown = str(wish.filters if isinstance(wish, Rule) else wish)
            table.add_row(name, shown, str(self.matches[name]))
        return table


def _line(subscription: str, wish: Wish, record: Record) -> str:
    match_: dict[str, Any] = {
        "subscription": subscription,
        "file": record.source,
        "record": record.number,
        "time": plain_time(record.notification),
        "attributes": plain_attributes(record.notification),
    }
    if isinstance(wish, Rule) and wish.about:
        match_["rule"] = about_of(wish)
    return msgspec.json.encode(match_).decode() + "\n"


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    return dict(named_text(text.strip(), "option") for text in texts)


def _constants(texts: Iterable[str]) -> dict[str, Value]:
    return {name: literal(value) for name, value in _pairs(texts).items()}
