"""`contrada match`: match records of files against subscriptions, without Spark."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import click
import msgspec
from rich.console import Console
from rich.table import Column, Table

from contrada.cli import read_flags
from contrada.cli import shared_options as options
from contrada.cli.lazy_group import EXIT_BAD_INPUT, EXIT_UNMET
from contrada.cli.rule_alerts import heading_of, report_rules, sigma_options
from contrada.cli.table_output import progress_of, table
from contrada.errors import InputError
from contrada.integrations.dialects.correlation_matcher import CorrelationMatcher
from contrada.integrations.documents.name_patterns import PATTERN
from contrada.integrations.files import (
    FORMATS,
    BadRecord,
    Matcher,
    Outcomes,
    ReadOptions,
    Record,
    check_name_of,
    format_of,
    read_file,
)
from contrada.integrations.files.json_objects import WHOLE_DOCUMENT
from contrada.integrations.files.lines import unpacked_name
from contrada.integrations.files.match_diagnosis import (
    RECORDS_EXPLAINED_MAX,
    missing_attributes,
    nearest_records,
)
from contrada.integrations.files.record import correlation_object, match_object
from contrada.integrations.files.record_matcher import RecordFilter
from contrada.integrations.files.subscription_files import (
    DIALECTS,
    STANDARD_INPUT,
    about_of,
    load_subscriptions,
)
from contrada.model import Notification
from contrada.model.languages.work_budget import Uncollected
from contrada.model.rule import CorrelationRule, Rule

PLACES = click.Path(exists=True, path_type=Path, allow_dash=True)


class _MatchPath(click.Path):
    """A path of `contrada match`; the error of a missing one has the order of the arguments."""

    def fail(self, message: str, *where: Any, **place: Any) -> NoReturn:
        expected = "first a file with lines `name: filter` (rules with --from), then files to match"
        super().fail(f"{message.rstrip('.')}; expected {expected}", *where, **place)


SUBSCRIPTIONS = _MatchPath(exists=True, path_type=Path, allow_dash=True)
INPUT = _MatchPath(exists=True, dir_okay=False, path_type=Path, allow_dash=True)

_READS_ARRAY: Final = {"json": "--entries . reads", "jsonl": "--format json --entries . reads"}
"""Options that read a JSON array, for the formats of lines."""


@click.command()
@click.argument("subscriptions", type=SUBSCRIPTIONS)
@click.argument("files", type=INPUT, nargs=-1, required=True)
@options.typed(
    "--from dialect", click.Choice([*DIALECTS]), None, "SUBSCRIPTIONS are rules of this dialect."
)
@sigma_options
@options.typed(
    "--format format_name", click.Choice(FORMATS), None, "Format; default: by the suffix."
)
@options.text(
    "--entries", "NAME", "XML: elements NAME; JSON: array NAME, or `.` for the whole document."
)
@options.text("--pattern", "REGEX", "Format lines: its named groups are attributes.")
@read_flags.cell_options
@read_flags.naming_options
@read_flags.document_options
@read_flags.stamp_options
@options.repeated("--mark", "TYPE", "Type mark; most general first.")
@click.option("--output", type=click.File("w"), default="-", help="File for the matches.")
@options.flag("--count", "Print only a table of matches per subscription.")
@options.flag("--all show_all", "With --count and --from: also rules without a match.")
@options.flag("--json as_json", "With --count: as JSON.")
@options.flag("--why", "Explain the nearest record of each subscription without a match.")
@options.extension_option
def match(
    subscriptions: Path,
    files: tuple[Path, ...],
    dialect: str | None,
    rules: dict[str, Any],
    format_name: str | None,
    mark: tuple[str, ...],
    output: IO[str],
    count: bool,
    show_all: bool,
    as_json: bool,
    why: bool,
    **given: Any,
) -> None:
    """Match the records of FILES against a file of SUBSCRIPTIONS.

    A subscription is a line `name: filter`; lines that begin with # are comments. A record is a row
    of CSV (csv, tsv), a line of JSON (json, jsonl, ndjson), an XML document or, with --entries, one
    repeated element of it, or of an array in a JSON document (json, and geojson, which needs it). A
    log is read line by line: --format access, syslog, journald, or lines with --pattern; the first
    line of a .log tells which. A record of evtx, an event log of Windows, is an event. Files that
    end in .gz, .bz2, .xz or .zst are unpacked. The file `-` is standard input, which is read as it
    is, and needs --format. Each match is one line of JSON.

    --strategy chooses the treatment of repeated elements of a document: `contrada help documents`.

    With --from, SUBSCRIPTIONS is a file of rules as for `contrada translate`, or a directory of
    such files. They are matched exactly, including residues, and each match has the title, author,
    level and tags of its rule. --count then lists the rules with a match. Correlations of Sigma
    need --time; a match of one lists its events.

    Unreadable records and rules are reported on standard error, with place and reason, the first
    ones one by one; the others are matched. The exit status is then 2. It is 3 if a name in an
    option is not in the files.

    If nothing matches, the attributes in filters that none of the first records has, or only with
    values of other types, are named on standard error; with --why, also the constraints that the
    nearest record of each subscription fails. Standard input is not read again.

    \b
    contrada match desk.filters flights.csv --types tailnum=text,time_hour=time --absent NA
    contrada match alerts.filters us.atom --entries entry --count
    contrada match --from sigma rules/windows events.jsonl
    """  # noqa: D301 - click reads the escape
    if as_json and not count:
        raise click.UsageError("--json is for --count; matches are JSON always")
    reading = read_flags.reading_of(marks=mark, **given)
    with Uncollected():
        wanted, correlations, refused = _wanted(subscriptions, dialect, rules)
        inputs = [_input(path, format_name, reading) for path in files]
        asked = (each.asked for each in correlations.values())
        matcher = Matcher([*wanted.values(), *asked], reading)
    only_matching = bool(dialect) and not show_all
    report = _MatchReport(wanted, correlations, output, quiet=count, only_matching=only_matching)
    report.take_all(inputs, matcher)
    report.note_unmet(inputs, matcher, reading)
    report.end(as_json=as_json)
    report.explain(inputs, reading, why=why)
    if report.bad or refused or report.unmet:
        raise click.exceptions.Exit(EXIT_BAD_INPUT if report.bad or refused else EXIT_UNMET)


def _input(path: Path, format_name: str | None, reading: ReadOptions) -> tuple[Path, str, str]:
    check_name_of(path)
    if str(path) != STANDARD_INPUT:
        is_geojson = unpacked_name(path.name).lower().endswith(".geojson")
        if is_geojson and format_name is None and not reading.entries:
            reason = (
                "its records are in an array: --entries features reads them, --format jsonl lines"
            )
            raise InputError(str(path), reason)
        return path, format_name or format_of(path), str(path)
    if format_name is None:
        raise click.UsageError("standard input needs --format")
    return Path("/dev/stdin"), format_name, "standard input"


def _wanted(
    place: Path, dialect: str | None, rules: Mapping[str, Any]
) -> tuple[Mapping[str, RecordFilter], Mapping[str, CorrelationRule], bool]:
    """Returns the subscriptions and the correlations by name, and whether rules were refused;
    reports the refusals.
    """
    if dialect is not None:
        return report_rules(place, dialect, **rules)
    if place.is_dir():
        raise click.UsageError("a directory of rules needs --from, such as --from sigma")
    return load_subscriptions(place), {}, False


def _first_records(inputs: Iterable[tuple[Path, str, str]], reading: ReadOptions) -> list[Record]:
    """Reads the first records of the files again, without standard input."""
    files = (
        read_file(path, format_, reading, source)
        for path, format_, source in inputs
        if path.is_file()
    )
    every = islice(chain.from_iterable(files), RECORDS_EXPLAINED_MAX)
    return [each for each in every if isinstance(each, Record)]


class _MatchReport:
    """Writes and counts the matches."""

    def __init__(
        self,
        wanted: Mapping[str, RecordFilter],
        correlations: Mapping[str, CorrelationRule],
        output: IO[str],
        *,
        quiet: bool,
        only_matching: bool,
    ) -> None:
        self.read = 0
        self.bad = 0
        self.matches: Counter[str] = Counter()
        self.empty: list[str] = []  # inputs without a record
        self.arrays: set[str] = set()  # inputs that are JSON arrays in a format of lines
        self.unmet: list[str] = []
        self._hints: set[str] = set()  # each is given once
        self._wanted = wanted
        self._names = list(wanted)
        self._correlations = correlations
        self._matcher = CorrelationMatcher(correlations)
        self._output = output
        self._quiet = quiet
        self._only_matching = only_matching

    def take_all(self, inputs: Iterable[tuple[Path, str, str]], matcher: Matcher) -> None:
        self._output.write("")  # Creates the file, also without a match.
        with progress_of("records") as show:
            for path, format_, source in inputs:
                before = self.read + self.bad
                for each in matcher.file(path, format_, source):
                    self.take(each)
                    show(self.read + self.bad, each.source)
                if self.read + self.bad == before:
                    self.empty.append(source)
        if not self._correlations:
            return
        self._take_correlated(self._matcher.end())
        for reason, number in self._matcher.dropped.items():
            click.echo(f"{number} dropped of correlations: {reason}", err=True)

    def _correlate(self, record: Record) -> None:
        """Gives a record to the correlations. Raises InputError for one without a time."""
        if record.notification.envelope.time_us is None:
            reason = f"record {record.number} has no time, which correlations need: --time NAME"
            raise InputError(record.source, reason)
        self._take_correlated(self._matcher.push(record.notification))

    def _take_correlated(self, found: Iterable[tuple[str, Sequence[Notification]]]) -> None:
        for name, events in found:
            self.matches[name] += 1
            if not self._quiet:
                about = about_of(self._correlations[name])
                line = msgspec.json.encode(correlation_object(name, about, events))
                self._output.write(line.decode() + "\n")

    def note_unmet(
        self, inputs: Iterable[tuple[Path, str, str]], matcher: Matcher, reading: ReadOptions
    ) -> None:
        """Adds the options that the inputs do not meet."""
        self.unmet += [
            f"{source} is a JSON array; {_READS_ARRAY[format_]} its objects"
            for _, format_, source in inputs
            if source in self.arrays
            and format_ in _READS_ARRAY
            and reading.entries != WHOLE_DOCUMENT
        ]
        if reading.entries:
            self.unmet += [f"{each}: found no entry {reading.entries!r}" for each in self.empty]
        if self.read and matcher.unmet:
            first = _first_records(inputs, reading)
            known = {name for each in first for name in each.notification.attributes}
            self.unmet += (reading.lack_of(name, known) for name in sorted(matcher.unmet))

    def end(self, *, as_json: bool) -> None:
        if self._quiet and as_json:
            self._output.write(self.counts() + "\n")
        elif self._quiet:
            Console(file=self._output, markup=False, emoji=False).print(self.table())
        if self.bad > read_flags.BAD_SHOWN_MAX:
            click.echo(f"and {self.bad - read_flags.BAD_SHOWN_MAX} more", err=True)
        if self.bad:
            click.echo(f"{self.bad} bad of {self.read + self.bad} records", err=True)
        elif not self.read and not self.unmet:
            click.echo("found no record", err=True)
        for each in self.unmet:
            click.echo(f"contrada: error: {each}", err=True)

    def explain(
        self, inputs: Iterable[tuple[Path, str, str]], reading: ReadOptions, *, why: bool
    ) -> None:
        """Names attributes that the first records lack, if nothing matched; with `why` explains the
        subscriptions without a match. Reads these records again.
        """
        wanted = {name: each for name, each in self._wanted.items() if not self.matches[name]}
        is_needed = self.read and wanted and (why or not self.matches)
        if not is_needed or reading.strategy == PATTERN:  # Names are patterns of names there.
            return
        records = _first_records(inputs, reading)
        read = [each.notification for each in records]
        found = missing_attributes(wanted.values(), read) if records else []
        if why and records:
            found += nearest_records(wanted, records)
        if found:
            click.echo(f"of the first {len(records)} records, without a match:", err=True)
        for each in found:
            click.echo(each, err=True)

    def take(self, outcomes: Outcomes) -> None:
        self.read += outcomes.read
        for each in outcomes.records:
            if isinstance(each, BadRecord):
                self.bad += 1
                if each.line == 1 and each.text.lstrip().startswith("["):
                    self.arrays.add(each.source)
                if self.bad <= read_flags.BAD_SHOWN_MAX:
                    hint = read_flags.hint_for(each)
                    hint = "" if hint in self._hints else hint
                    self._hints.add(hint)
                    click.echo(f"{each.error()}{hint}", err=True)
                continue
            if each.positions[-1] >= len(self._names):
                self._correlate(each.record)
            for position in each.positions:
                if position >= len(self._names):
                    break  # The others are of correlations.
                name, record = self._names[position], each.record
                self.matches[name] += 1
                if self._quiet:
                    continue
                place = {"file": record.source, "record": record.number}
                asked = self._wanted[name]
                about = about_of(asked) if isinstance(asked, Rule) else {}
                found = match_object(name, about, record.notification, **place)
                self._output.write(msgspec.json.encode(found).decode() + "\n")
        if outcomes.records and not self._quiet:
            self._output.flush()  # A reader of the pipe gets the first matches early.

    def counts(self) -> str:
        counted = {name: self.matches[name] for name in (*self._names, *self._correlations)}
        counts = {"read": self.read, "bad": self.bad, "matches": counted}
        return msgspec.json.encode(counts).decode()

    def table(self) -> Table:
        title = f"{self.read} records"
        rules: dict[str, RecordFilter | CorrelationRule] = {**self._wanted, **self._correlations}
        if not any(isinstance(each, Rule | CorrelationRule) for each in rules.values()):
            made = table("subscription", "filter", right=("matches",), title=title)
            for name, wish in self._wanted.items():
                made.add_row(name, str(wish), str(self.matches[name]))
            return made
        named = Column("rule", no_wrap=True, overflow="ignore")
        made = table(named, "title", "level", right=("matches",), title=title)
        for name, rule in rules.items():
            if self.matches[name] or not self._only_matching:
                made.add_row(name, *heading_of(name, rule), str(self.matches[name]))
        return made
