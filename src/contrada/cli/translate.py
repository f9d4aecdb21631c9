"""`contrada translate`: other people's rules as filters, and which of them are none."""

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import click
import msgspec
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from contrada.cli.extension import extension_option
from contrada.cli.lazy import EXIT_BAD_INPUT
from contrada.dialects.rules import ReadRules, RefusedRule, Rule
from contrada.errors import InputError
from contrada.model.parsing import TEXT_CHARACTERS_MAX
from contrada.records.subscriptions import NAME_CHARS_MAX


class Dialect(NamedTuple):
    """Where a dialect's `read_rules` is, and how its files end in directories."""

    module: str
    suffixes: tuple[str, ...]


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

PROGRESS_RULES: Final = 100
"""The progress display is told after so many rules."""

_PLACES: Final = click.Path(exists=True, path_type=Path)


@click.command()
@click.option("--from", "dialect", type=click.Choice([*DIALECTS]), required=True)
@click.argument("files", type=_PLACES, nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON per rule, refused or not.")
@click.option("--rows", is_flag=True, help="prometheus: a notification holds several metrics.")
@extension_option
def translate(dialect: str, files: tuple[Path, ...], as_json: bool, rows: bool) -> None:
    """Translate the rules in FILES to filters.

    Each rule is printed as a line `name: filter`, so that the output is a file of subscriptions
    for `contrada match`; a rule that cannot be one, since nothing can match it or its text is too
    long, is a comment there. Of a directory, all files of the dialect beneath it are read. Names
    get a dot for each colon, and a number where they come twice.

    A rule may ask for more than filters can: what they leave open stands in a comment in front,
    and the filter then matches whatever the rule does, and maybe more. A rule that cannot be read
    is listed on standard error with its file, its name and the reason; the others are translated
    all the same, and the exit status is then 2. A table of all that was read ends the work.

    What is read: a Sigma rule per YAML document; an EventBridge pattern, an array or lines of
    them; a CloudEvents subscription, likewise; a CESQL expression per line; SQL conditions, each
    ended by a semicolon; rules of Prometheus in YAML.

    \b
    contrada translate --from sigma rules/windows > windows.filters
    contrada translate --from sql conditions.sql --json
    """  # noqa: D301 - click reads the escape
    if rows and dialect != "prometheus":
        raise click.UsageError("--rows is for prometheus only")
    read_rules = cast(ReadRules, importlib.import_module(DIALECTS[dialect].module).read_rules)
    options = {"rows": True} if rows else {}
    report = _Report(as_json=as_json)
    with _progress() as progress:
        task = progress.add_task("translate", total=None, file="") if progress else None
        for path in _files(files, DIALECTS[dialect].suffixes):
            for rule in _rules(path, read_rules, options):
                report.take(str(path), rule)
                if progress and task is not None and report.read % PROGRESS_RULES == 0:
                    progress.update(task, completed=report.read, file=str(path))
    Console(stderr=True, markup=False, emoji=False).print(report.table(dialect))
    if report.refused:
        raise click.exceptions.Exit(EXIT_BAD_INPUT)


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


def _rules(
    path: Path, read_rules: ReadRules, options: dict[str, Any]
) -> Iterator[Rule | RefusedRule]:
    """The rules of a file; one that is no text is one refused rule."""
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        yield RefusedRule("", InputError(str(path), "the file is not UTF-8"))
    except OSError as error:
        yield RefusedRule("", InputError(str(path), f"the file cannot be read: {error.strerror}"))
    else:
        yield from read_rules(text, **options)


class _Report:
    """Writes the rules as they come and counts them."""

    def __init__(self, *, as_json: bool) -> None:
        self.read = 0
        self.refused = 0
        self._filters = 0
        self._open = 0
        self._empty = 0
        self._long = 0
        self._reasons: Counter[str] = Counter()
        self._names: Counter[str] = Counter()
        self._as_json = as_json

    def take(self, file: str, rule: Rule | RefusedRule) -> None:
        """One more rule, or refused rule."""
        self.read += 1
        if isinstance(rule, RefusedRule):
            self.refused += 1
            self._reasons[rule.reason] += 1
            _tell(f"{file}: {rule.name}: {rule.error}" if rule.name else f"{file}: {rule.error}")
        else:
            self._filters += len(rule.filters)
            self._open += bool(rule.residue)
        if self._as_json:
            click.echo(msgspec.json.encode(_as_object(file, rule)))
        elif isinstance(rule, Rule):
            click.echo(self._line(self._name(rule.name or Path(file).stem), rule))

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
            self._empty += 1
            return f"# {name}: nothing can match this rule"
        text = str(rule.filters)
        if len(name) + len(text) >= TEXT_CHARACTERS_MAX:
            self._long += 1
            return f"# {name}: {len(rule.filters)} filters, too long for a line; see --json"
        open_part = f"# {name} leaves open: {_in_one_line(rule.residue)}\n" if rule.residue else ""
        return f"{open_part}{name}: {text}"

    def table(self, dialect: str) -> Table:
        """How many rules were translated, and how many refused for which reason."""
        table = Table("rules", title=f"{self.read:,} {dialect} rules", show_header=False)
        table.add_column(justify="right")
        table.add_row("translated", f"{self.read - self.refused:,}")
        table.add_row("  filters of these", f"{self._filters:,}")
        table.add_row("  with a residue", f"{self._open:,}")
        if self._empty:
            table.add_row("  that nothing can match", f"{self._empty:,}")
        if self._long:
            table.add_row("  too long for a line", f"{self._long:,}")
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
            "refused": rule.reason,
            "place": getattr(rule.error, "place", ""),
            "message": str(rule.error),
        }
    return {
        "file": file,
        "rule": rule.name,
        "filters": [str(each) for each in rule.filters.filters],
        "residue": rule.residue,
    }


def _tell(message: str) -> None:
    click.echo(_in_one_line(message), err=True)


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


def _progress() -> "Progress | nullcontext[None]":
    """A display on standard error where a person looks at it."""
    if not sys.stderr.isatty():
        return nullcontext()
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.completed:,.0f} rules  {task.fields[file]}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
