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
from contrada.cli.rule_alerts import check_options, sigma_options
from contrada.cli.table_output import progress_of, table
from contrada.errors import InputError
from contrada.integrations.files.subscription_files import (
    DIALECTS,
    PREPARED,
    WITH_CORRELATIONS,
    RuleNames,
    about_of,
    message_of,
    plain_text,
    reason_of,
    rule_files,
    rules_in,
)
from contrada.model.rule import CorrelationRule, RefusedRule, Rule
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
@sigma_options
@options.extension_option
def translate(
    dialect: str,
    files: tuple[Path, ...],
    as_json: bool,
    rows: bool,
    prepared: bool,
    placeholders: Path | None,
    rules: dict[str, Any],
) -> None:
    """Translate the rules in FILES to filters.

    A file `-` is standard input. Of a directory, all files of the dialect below it are read.

    \b
    --from       a file holds                                    in directories
    sigma        a rule per YAML document                        .yml .yaml
    eventbridge  a pattern, an array or lines of them, a template .json .jsonl .yml .yaml .template
    cloudevents  a subscription, its filters, or lines of them   .json .jsonl
    cesql        an expression per line                          .cesql .txt
    sql          conditions, each ended by a semicolon           .sql
    prometheus   rules or alerts in YAML                         .yml .yaml
    alertmanager routes and inhibitions in YAML, silences        .yml .yaml .json
    pubsub       a filter of Google Pub/Sub per line             .filter .txt
    servicebus   a SQL filter of Azure Service Bus per line      .filter .txt
    jms          a message selector per line                     .selector .txt
    rabbitmq     arguments of headers bindings, definitions      .json .jsonl
    falco        rules, macros and lists in YAML                 .yml .yaml

    Each rule is a line `name: filter` of a file for `contrada match`; a comment before it has the
    title, author and other metadata, remarks, and the residue, which filters cannot express: the
    filter then matches more. A rule that nothing can match, or with a text that is too long, is
    only a comment. In names a colon becomes a dot, and a repeated name gets a number.

    A rule that cannot be read is listed on standard error with its file, its name and the reason;
    the others are translated. A table of all rules is printed at the end.

    The exit status is 0 if all rules were translated, and 2 if some were refused or a file has no
    rule.

    \b
    contrada translate --from sigma rules/windows > windows.filters
    contrada translate --from sql conditions.sql --json
    zcat filters.jsonl.gz | contrada translate --from sigma --prepared -
    """  # noqa: D301 - click reads the escape
    check_options(dialect, {"rows": rows}, "prometheus")
    given = _sigma_options(dialect, prepared, placeholders, rules)
    given |= {"rows": True} if rows else {}
    source = PREPARED if prepared else WITH_CORRELATIONS[dialect]
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


def _sigma_options(
    dialect: str, prepared: bool, placeholders: Path | None, rules: dict[str, Any]
) -> dict[str, Any]:
    """Returns the options of the reader of Sigma's rules. Raises UsageError for other rules."""
    check_options(dialect, {"prepared": prepared, "placeholders": placeholders}, "sigma")
    of_yaml = {"placeholders": placeholders, **rules}
    for name, value in of_yaml.items():
        if prepared and value:
            shown = name.replace("pipelines", "pipeline")
            raise click.UsageError(f"--{shown} is for rules in YAML, not for --prepared")
    given: dict[str, Any] = {"placeholders": _placeholders(placeholders)} if placeholders else {}
    return given | rules


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

    def take(self, file: str, rule: Rule | CorrelationRule | RefusedRule) -> None:
        self.read += 1
        rule = replace(rule, name=plain_text(rule.name))
        if isinstance(rule, RefusedRule):
            self.refused += 1
            self._reasons[reason_of(rule)] += 1
            refusal = ": ".join(filter(None, (file, rule.name, message_of(rule))))
            click.echo(_in_one_line(refusal), err=True)
        elif isinstance(rule, CorrelationRule):
            self._counts["as patterns"] += 1
        else:
            self._counts["filters of these"] += len(rule.filters)
            self._counts["with a residue"] += bool(rule.residue)
            self._notes.update(note.reason for note in rule.notes)
        if self._as_json:
            click.echo(msgspec.json.encode(_as_object(file, rule)))
        elif not isinstance(rule, RefusedRule):
            name = self._names.new(rule.name or Path(file).stem)
            if metadata := _metadata(rule):
                click.echo(f"# {name} has {metadata}")
            if isinstance(rule, CorrelationRule):
                for pattern in (*rule.patterns, *rule.filters.filters):
                    click.echo(f"# {name} is the pattern {pattern}")
                return
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
        title = f"{self.read:,} {dialect} rules"
        made = table("rules", right=("",), title=title, show_header=False)
        made.add_row("translated", f"{self.read - self.refused:,}")
        for name in ("filters of these", "with a residue"):
            made.add_row(f"  {name}", f"{self._counts[name]:,}")
        for name in ("as patterns", "that nothing can match", "too long for a line"):
            if self._counts[name]:
                made.add_row(f"  {name}", f"{self._counts[name]:,}")
        for reason, count in self._notes.most_common():
            made.add_row(f"  with {reason}", f"{count:,}")
        made.add_section()
        made.add_row("refused", f"{self.refused:,}")
        for reason, count in self._reasons.most_common():
            made.add_row(f"  {reason}", f"{count:,}")
        return made


def _as_object(file: str, rule: Rule | CorrelationRule | RefusedRule) -> dict[str, Any]:
    shown = {"file": file, "rule": rule.name}
    if isinstance(rule, RefusedRule):
        return shown | {
            "refused": reason_of(rule),
            "place": plain_text(getattr(rule.error, "place", "")),
            "message": message_of(rule),
        }
    if isinstance(rule, CorrelationRule):
        patterns = [str(each) for each in (*rule.patterns, *rule.filters.filters)]
        return shown | {"patterns": patterns, "about": about_of(rule)}
    return shown | {
        "filters": [str(each) for each in rule.filters.filters],
        "residue": rule.residue,
        "notes": [str(note) for note in rule.notes],
        "about": about_of(rule),
    }


def _metadata(rule: Rule | CorrelationRule) -> str:
    """Returns the metadata of a rule in one line, without its name."""
    members = (
        f"{key}: {each if isinstance(each, str) else ', '.join(each)}"
        for key, each in about_of(rule).items()
        if each != rule.name
    )
    return _in_one_line("; ".join(members))


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
