"""`contrada translate`: rules of other dialects as filters, and the refused rules."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table

from contrada.cli import shared_options as options
from contrada.cli.lazy_group import EXIT_BAD_INPUT
from contrada.cli.match import PLACES
from contrada.cli.table_output import progress_of, table
from contrada.errors import InputError
from contrada.integrations.files.subscription_files import (
    DIALECTS,
    PREPARED,
    RuleNames,
    about_of,
    message_of,
    plain_text,
    reason_of,
    rule_files,
    rules_in,
)
from contrada.model.rule import RefusedRule, Rule
from contrada.model.syntax.parser import TEXT_CHARACTERS_MAX

PROGRESS_RULES: Final = 100  # Rules between two updates of the progress bar


@click.command()
@click.option(
    "--from", "dialect", type=click.Choice([*DIALECTS]), required=True, help="Dialect of the rules."
)
@click.argument("files", type=PLACES, nargs=-1, required=True)
@options.flag("--json as_json", "One line of JSON per rule, also refused ones.")
@options.flag("--rows", "prometheus: a notification has several metrics.")
@options.flag("--prepared", "sigma: file of JSON lines, alternatives of constraints.")
@options.typed(
    "--placeholders",
    options.FILE,
    None,
    "sigma: JSON file with the texts of each placeholder of expand.",
)
@options.extension_option
def translate(
    dialect: str,
    files: tuple[Path, ...],
    as_json: bool,
    rows: bool,
    prepared: bool,
    placeholders: Path | None,
) -> None:
    """Translate the rules in FILES to filters.

    A file `-` is standard input. Of a directory, all files of the dialect below it are read.

    \b
    --from       a file holds                                    in directories
    sigma        a rule per YAML document                        .yml .yaml
    eventbridge  a pattern, or an array or lines of them         .json .jsonl
    cloudevents  a subscription, its filters, or lines of them   .json .jsonl
    cesql        an expression per line                          .cesql .txt
    sql          conditions, each ended by a semicolon           .sql
    prometheus   rules or alerts in YAML                         .yml .yaml

    Each rule is printed as a line `name: filter`, so that the output is a file of subscriptions for
    `contrada match`; a comment before it has the title, author and other metadata. A rule that
    nothing can match, or with a text that is too long, is only a comment. In names a colon becomes
    a dot, and a repeated name gets a number.

    A rule may have a residue, which filters cannot express: it is in a comment before the line, and
    the filter then matches everything that the rule matches, and maybe more. Other remarks on a
    rule, such as a log source without a constraint, are comments too. A rule that cannot be read is
    listed on standard error with its file, its name and the reason; the others are translated. A
    table of all rules is printed at the end.

    The exit status is 0 if all rules were translated, and 2 if some were refused or a file has no
    rule.

    \b
    contrada translate --from sigma rules/windows > windows.filters
    contrada translate --from sql conditions.sql --json
    zcat filters.jsonl.gz | contrada translate --from sigma --prepared -
    """  # noqa: D301 - click reads the escape
    _check_options(dialect, {"rows": rows}, "prometheus")
    _check_options(dialect, {"prepared": prepared, "placeholders": placeholders}, "sigma")
    if prepared and placeholders:
        raise click.UsageError("--placeholders is for rules in YAML, not for --prepared")
    given: dict[str, Any] = {"rows": True} if rows else {}
    if placeholders:
        given["placeholders"] = _placeholders(placeholders)
    source = PREPARED if prepared else DIALECTS[dialect]
    report = _TranslationReport(as_json=as_json)
    read = source.reader()
    with progress_of("rules") as show:
        for path in rule_files(files, source.suffixes):
            show(report.read, str(path))
            for rule in rules_in(path, read, given):
                report.take(str(path), rule)
                if report.read % PROGRESS_RULES == 0:
                    show(report.read, str(path))
    Console(stderr=True, markup=False, emoji=False).print(report.table(dialect))
    if report.refused:
        raise click.exceptions.Exit(EXIT_BAD_INPUT)


def _check_options(dialect: str, given: dict[str, object], only: str) -> None:
    """Raises UsageError for an option of another dialect."""
    for name, value in given.items():
        if value and dialect != only:
            raise click.UsageError(f"--{name} is for {only} only")


def _placeholders(path: Path) -> dict[str, list[str]]:
    """Returns the texts of each placeholder, from a file with an object of lists of texts."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[str]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = f"expected an object with a list of texts for each placeholder: {error}"
        raise InputError(str(path), reason) from None


class _TranslationReport:
    """Writes and counts the rules."""

    def __init__(self, *, as_json: bool) -> None:
        self.read = 0
        self.refused = 0
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()
        self._names = RuleNames()
        self._as_json = as_json

    def take(self, file: str, rule: Rule | RefusedRule) -> None:
        """Adds one rule, or refused rule."""
        self.read += 1
        rule = replace(rule, name=plain_text(rule.name))
        if isinstance(rule, RefusedRule):
            self.refused += 1
            self._reasons[reason_of(rule)] += 1
            refusal = ": ".join(filter(None, (file, rule.name, message_of(rule))))
            click.echo(_in_one_line(refusal), err=True)
        else:
            self._counts["filters of these"] += len(rule.filters)
            self._counts["with a residue"] += bool(rule.residue)
            self._notes.update(note.reason for note in rule.notes)
        if self._as_json:
            click.echo(msgspec.json.encode(_as_object(file, rule)))
        elif isinstance(rule, Rule):
            name = self._names.new(rule.name or Path(file).stem)
            if metadata := _metadata(rule):
                click.echo(f"# {name} has {metadata}")
            for note in rule.notes:
                click.echo(f"# {name} has {_in_one_line(str(note))}")
            click.echo(self._line(name, rule))

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
        """Returns a table of the translated rules, and of the refused ones by reason."""
        title = f"{self.read:,} {dialect} rules"
        made = table("rules", right=("",), title=title, show_header=False)
        made.add_row("translated", f"{self.read - self.refused:,}")
        for name in ("filters of these", "with a residue"):
            made.add_row(f"  {name}", f"{self._counts[name]:,}")
        for name in ("that nothing can match", "too long for a line"):
            if self._counts[name]:
                made.add_row(f"  {name}", f"{self._counts[name]:,}")
        for reason, count in self._notes.most_common():
            made.add_row(f"  with {reason}", f"{count:,}")
        made.add_section()
        made.add_row("refused", f"{self.refused:,}")
        for reason, count in self._reasons.most_common():
            made.add_row(f"  {reason}", f"{count:,}")
        return made


def _as_object(file: str, rule: Rule | RefusedRule) -> dict[str, Any]:
    """Returns the JSON object of a rule."""
    shown = {"file": file, "rule": rule.name}
    if isinstance(rule, RefusedRule):
        return shown | {
            "refused": reason_of(rule),
            "place": plain_text(getattr(rule.error, "place", "")),
            "message": message_of(rule),
        }
    return shown | {
        "filters": [str(each) for each in rule.filters.filters],
        "residue": rule.residue,
        "notes": [str(note) for note in rule.notes],
        "about": about_of(rule),
    }


def _metadata(rule: Rule) -> str:
    """Returns the metadata of a rule in one line, without its name."""
    members = (
        f"{key}: {each if isinstance(each, str) else ', '.join(each)}"
        for key, each in about_of(rule).items()
        if each != rule.name
    )
    return _in_one_line("; ".join(members))


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
