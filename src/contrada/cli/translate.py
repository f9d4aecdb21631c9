"""`contrada translate`: other people's rules as filters, and which of them are none."""

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import click
import msgspec
from rich.console import Console
from rich.table import Table

from contrada.cli.extension import extension_option
from contrada.cli.lazy import EXIT_BAD_INPUT
from contrada.cli.match import FILE
from contrada.cli.tables import progress_of
from contrada.dialects.rules import ReadRules, RefusedRule, Rule
from contrada.errors import InputError
from contrada.model.syntax.parsing import TEXT_CHARACTERS_MAX
from contrada.records.subscriptions import NAME_CHARS_MAX


class Dialect(NamedTuple):
    """Where what reads a dialect's files is, and how these end in directories."""

    module: str
    suffixes: tuple[str, ...]
    read: str = "read_rules"


_YAML: Final = (".yml", ".yaml")
_JSON: Final = (".json", ".jsonl")

DIALECTS: Final = {
    "sigma": Dialect("contrada.dialects.sigma", _YAML),
    "eventbridge": Dialect("contrada.dialects.eventbridge", _JSON),
    "cloudevents": Dialect("contrada.dialects.cloudevents", _JSON),
    "cesql": Dialect("contrada.dialects.cesql", (".cesql", ".txt")),
    "sql": Dialect("contrada.dialects.sql", (".sql",)),
    "prometheus": Dialect("contrada.dialects.prometheus", _YAML),
}

PREPARED: Final = Dialect("contrada.dialects.sigma", (".jsonl",), "read_prepared")
"""Sigma's rules with `--prepared`."""

STANDARD_INPUT: Final = "-"

NOT_UTF_8: Final = "not UTF-8"
NO_RULES: Final = "found no rule in the file"

PROGRESS_RULES: Final = 100
"""The progress display is told after so many rules."""

_PLACES: Final = click.Path(exists=True, path_type=Path, allow_dash=True)


@click.command()
@click.option(
    "--from", "dialect", type=click.Choice([*DIALECTS]), required=True, help="What the rules are."
)
@click.argument("files", type=_PLACES, nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON per rule, refused or not.")
@click.option("--rows", is_flag=True, help="prometheus: a notification holds several metrics.")
@click.option("--prepared", is_flag=True, help="sigma: lines of JSON, alternatives of constraints.")
@click.option(
    "--placeholders", type=FILE, help="sigma: JSON with the texts of each placeholder of expand."
)
@extension_option
def translate(
    dialect: str,
    files: tuple[Path, ...],
    as_json: bool,
    rows: bool,
    prepared: bool,
    placeholders: Path | None,
) -> None:
    """Translate the rules in FILES to filters.

    A file `-` is standard input. Of a directory, all files of the dialect beneath it are read.

    \b
    --from       a file holds                                    in directories
    sigma        a rule per YAML document                        .yml .yaml
    eventbridge  a pattern, or an array or lines of them         .json .jsonl
    cloudevents  a subscription, its filters, or lines of them   .json .jsonl
    cesql        an expression per line                          .cesql .txt
    sql          conditions, each ended by a semicolon           .sql
    prometheus   rules or alerts in YAML                         .yml .yaml

    Each rule is printed as a line `name: filter`, so that the output is a file of subscriptions
    for `contrada match`; a rule that cannot be one, since nothing can match it or its text is too
    long, is a comment there. Names get a dot for each colon, and a number where they come twice.

    A rule may ask for more than filters can: what they leave open stands in a comment in front,
    and the filter then matches whatever the rule does, and maybe more. So does what else should be
    known of a rule, as that its log source constrains nothing. A rule that cannot be read
    is listed on standard error with its file, its name and the reason; the others are translated
    all the same. A table of all that was read ends the work.

    The exit status is 0 when all rules were translated, and 2 when some were refused, or a file
    has no rule.

    \b
    contrada translate --from sigma rules/windows > windows.filters
    contrada translate --from sql conditions.sql --json
    zcat filters.jsonl.gz | contrada translate --from sigma --prepared -
    """  # noqa: D301 - click reads the escape
    _check_options(dialect, {"rows": rows}, "prometheus")
    _check_options(dialect, {"prepared": prepared, "placeholders": placeholders}, "sigma")
    if prepared and placeholders:
        raise click.UsageError("--placeholders is for rules in YAML, not for --prepared")
    options: dict[str, Any] = {"rows": True} if rows else {}
    if placeholders:
        options["placeholders"] = _placeholders(placeholders)
    source = PREPARED if prepared else DIALECTS[dialect]
    read = cast(ReadRules, getattr(importlib.import_module(source.module), source.read))
    report = _TranslationReport(as_json=as_json)
    _report_all(report, _files(files, source.suffixes), read, options)
    Console(stderr=True, markup=False, emoji=False).print(report.table(dialect))
    if report.refused:
        raise click.exceptions.Exit(EXIT_BAD_INPUT)


def _report_all(
    report: "_TranslationReport", files: Iterator[Path], read: ReadRules, options: dict[str, Any]
) -> None:
    """Reads and reports every rule of the files, with a word on how far that is."""
    with progress_of("rules") as told:
        for path in files:
            told(report.read, str(path))
            for rule in _rules(path, read, options):
                report.take(str(path), rule)
                if report.read % PROGRESS_RULES == 0:
                    told(report.read, str(path))


def _check_options(dialect: str, given: dict[str, object], only: str) -> None:
    """Raises UsageError where an option is given that only another dialect has."""
    for name, value in given.items():
        if value and dialect != only:
            raise click.UsageError(f"--{name} is for {only} only")


def _placeholders(path: Path) -> dict[str, list[str]]:
    """The texts of each placeholder, from a file with an object of lists of texts."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[str]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = f"expected an object with a list of texts for each placeholder: {error}"
        raise InputError(str(path), reason) from None


def _files(places: tuple[Path, ...], suffixes: tuple[str, ...]) -> Iterator[Path]:
    """The files that are named, and those of the dialect beneath the directories, in order."""
    for place in places:
        if not place.is_dir():
            yield place
            continue
        found = sorted(each for each in place.rglob("*") if each.suffix.lower() in suffixes)
        if not found:
            expected = " or ".join(suffixes)
            raise InputError(str(place), f"found no file that ends in {expected}")
        yield from (each for each in found if each.is_file())


def _rules(path: Path, read: ReadRules, options: dict[str, Any]) -> Iterator[Rule | RefusedRule]:
    """The rules of a file; one that is no text, or has no rule, is one refused rule."""
    try:
        text = _content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield RefusedRule("", InputError(str(path), f"byte {error.start + 1} is {NOT_UTF_8}"))
        return
    except OSError as error:
        yield RefusedRule("", InputError(str(path), f"cannot be read: {error.strerror}"))
        return
    rules = read(text, **options) if text.strip() else iter(())
    first = next(rules, RefusedRule("", InputError(str(path), NO_RULES)))
    yield from chain((first,), rules)


def _content(path: Path) -> bytes:
    if str(path) == STANDARD_INPUT:
        return sys.stdin.buffer.read()
    return path.read_bytes()


class _TranslationReport:
    """Writes the rules as they come and counts them."""

    def __init__(self, *, as_json: bool) -> None:
        self.read = 0
        self.refused = 0
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()
        self._names: Counter[str] = Counter()
        self._as_json = as_json

    def take(self, file: str, rule: Rule | RefusedRule) -> None:
        """One more rule, or refused rule."""
        self.read += 1
        rule = replace(rule, name=_plain(rule.name))
        if isinstance(rule, RefusedRule):
            self.refused += 1
            self._reasons[_reason(rule)] += 1
            _tell(": ".join(filter(None, (file, rule.name, _message(rule)))))
        else:
            self._counts["filters of these"] += len(rule.filters)
            self._counts["with a residue"] += bool(rule.residue)
            self._notes.update(note.reason for note in rule.notes)
        if self._as_json:
            click.echo(msgspec.json.encode(_as_object(file, rule)))
        elif isinstance(rule, Rule):
            name = self._name(rule.name or Path(file).stem)
            for note in rule.notes:
                click.echo(f"# {name} has {_in_one_line(str(note))}")
            click.echo(self._line(name, rule))

    def _name(self, name: str) -> str:
        """The name as one of a file of subscriptions: in one line, without colon, and once."""
        plain = (
            " ".join(name.replace(":", ".").split()).lstrip("#")[: NAME_CHARS_MAX - 12] or "rule"
        )
        name = plain
        while name in self._names:
            self._names[plain] += 1
            name = f"{plain} ({self._names[plain]})"
        self._names[name] += 1
        return name

    def _line(self, name: str, rule: Rule) -> str:
        if rule.filters.is_empty:
            self._counts["that nothing can match"] += 1
            return f"# {name}: nothing can match this rule"
        text = str(rule.filters)
        if len(name) + len(text) >= TEXT_CHARACTERS_MAX:
            self._counts["too long for a line"] += 1
            return f"# {name}: {len(rule.filters)} filters, too long for a line; see --json"
        open_part = f"# {name} leaves open: {_in_one_line(rule.residue)}\n" if rule.residue else ""
        return f"{open_part}{name}: {text}"

    def table(self, dialect: str) -> Table:
        """How many rules were translated, and how many refused for which reason."""
        table = Table("rules", title=f"{self.read:,} {dialect} rules", show_header=False)
        table.add_column(justify="right")
        table.add_row("translated", f"{self.read - self.refused:,}")
        for what in ("filters of these", "with a residue"):
            table.add_row(f"  {what}", f"{self._counts[what]:,}")
        for what in ("that nothing can match", "too long for a line"):
            if self._counts[what]:
                table.add_row(f"  {what}", f"{self._counts[what]:,}")
        for reason, count in self._notes.most_common():
            table.add_row(f"  with {reason}", f"{count:,}")
        table.add_section()
        table.add_row("refused", f"{self.refused:,}")
        for reason, count in self._reasons.most_common():
            table.add_row(f"  {reason}", f"{count:,}")
        return table


def _as_object(file: str, rule: Rule | RefusedRule) -> dict[str, Any]:
    """A rule as JSON has it."""
    if isinstance(rule, RefusedRule):
        return {
            "file": file,
            "rule": rule.name,
            "refused": _reason(rule),
            "place": _plain(getattr(rule.error, "place", "")),
            "message": _message(rule),
        }
    return {
        "file": file,
        "rule": rule.name,
        "filters": [str(each) for each in rule.filters.filters],
        "residue": rule.residue,
        "notes": [str(note) for note in rule.notes],
    }


def _reason(rule: RefusedRule) -> str:
    """The reason, by which refusals are counted; of files that are no text it is one for all."""
    reason = rule.reason
    return NOT_UTF_8 if isinstance(rule.error, InputError) and NOT_UTF_8 in reason else reason


def _message(rule: RefusedRule) -> str:
    """What the error says, without the name of the file."""
    return _plain(rule.error.reason if isinstance(rule.error, InputError) else str(rule.error))


def _plain(text: str) -> str:
    """A text as it can be written: rules in JSON may hold lone surrogates."""
    return text.encode(errors="backslashreplace").decode()


def _tell(message: str) -> None:
    click.echo(_in_one_line(message), err=True)


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
