"""`contrada ask`: query sources of data from the command line."""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, Final

import click

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, connect, run
from contrada.cli.lazy_group import EXIT_INCOMPLETE
from contrada.cli.log_output import escape_controls
from contrada.cli.notification_output import group_text, json_line, parts_of
from contrada.cli.table_output import output, table
from contrada.integrations.files.json_objects import json_group
from contrada.model import Notification
from contrada.routing.aggregation import AGGREGATES_MAX, Aggregate, AggregateKind
from contrada.routing.router_messages import SourceReport, SourceState
from contrada.service import Answers, Service
from contrada.service.query_interface import QUESTION_WAIT_S

Show = Callable[[Any], str]
NamesOf = Callable[[Any], Iterable[str]]

_OF_ATTRIBUTES: Final = ("sum", "min", "max", "mean", "distinct")
_OF_ITEMS: Final = ("top", "bottom")
_HELP: Final = {
    "sum": "Sum of ATTR.",
    "min": "Smallest value.",
    "max": "Largest value.",
    "mean": "Mean of ATTR.",
    "distinct": "Number of distinct values; beyond some thousands an estimate.",
    "top": "N answers with the largest values.",
    "bottom": "N answers with the smallest values.",
}
_DONE: Final = (SourceState.ANSWERED, SourceState.EMPTY)


def aggregate_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options for aggregates; the command gets `aggregates`, in a fixed order."""

    @wraps(command)
    def with_aggregates(*args: Any, counts: bool, **options: Any) -> None:
        found = [Aggregate(AggregateKind.COUNT)] if counts else []
        for kind in _OF_ATTRIBUTES:
            found += [Aggregate(AggregateKind(kind), name) for name in options.pop(kind)]
        for kind in _OF_ITEMS:
            found += [_best(kind, text) for text in options.pop(kind)]
        command(*args, aggregates=found, **options)

    return options.joined(
        options.flag("--count counts", "Number of answers."),
        *(options.repeated(f"--{kind}", "ATTR", _HELP[kind]) for kind in _OF_ATTRIBUTES),
        *(options.repeated(f"--{kind}", "N:ATTR", _HELP[kind]) for kind in _OF_ITEMS),
    )(with_aggregates)


def _best(kind: str, text: str) -> Aggregate:
    number, _, name = text.partition(":")
    if not number.isdecimal() or not name:
        raise click.UsageError(f"--{kind}: found {text!r}, expected N:ATTR, as 3:price")
    return Aggregate(AggregateKind(kind), name, int(number))


@click.command()
@click.argument("question", metavar="QUESTION")
@options.broker_option
@aggregate_options
@options.text("--by", "ATTR", "One result for each value of ATTR.", default="")
@click.option("--limit", type=options.COUNT, metavar="N", help="End after N answers.")
@options.text("--sort", "[-]ATTR", "Sort by ATTR; with -, largest first.", default="")
@options.flag("--unique", "Only one of equal answers.")
@options.typed(
    "--timeout", options.SECONDS, "S", "Wait at most S seconds for answers.", QUESTION_WAIT_S
)
@options.flag("--json as_json", "One JSON object per line.")
@approach_options
@options.extension_option
def ask(
    question: str,
    to: str,
    aggregates: list[Aggregate],
    by: str,
    limit: int | None,
    sort: str,
    unique: bool,
    timeout: float,
    as_json: bool,
    approach: Approach,
) -> None:
    """Query the sources whose description meets QUESTION; print their answers, one per line.

    QUESTION is a filter, in which a variable may follow `=`: attributes with the same variable have
    equal values. Each answer begins with its source, as @publisher. Aggregates are combined on
    their path; the output has a line for each value of --by, or one for all, and below it the
    answers of --top and --bottom.

    At the end a table on standard error shows the state of each source; a name that begins with @
    is a server that could not be queried or was lost. Attributes in options that no answer has are
    named below it. The exit status is 4 if a source failed, was too late or was lost: answers are
    then missing, unless --limit was reached.

    \b
    contrada ask "author = 'Steinbeck' and edition < 2"
    contrada ask "origin = $x and dest = $x" --limit 10
    contrada ask "price > 0" --count --sum price --by symbol
    contrada ask "dep_delay > 120" --top 3:dep_delay --timeout 5 --json | jq .
    """  # noqa: D301 - click reads the escape
    if aggregates and (limit is not None or sort or unique):
        raise click.UsageError("--limit, --sort and --unique are for answers, not for aggregates")
    if by and not aggregates:
        raise click.UsageError("--by is for aggregates: add one, such as --count")
    service = connect(to, approach, reconnect=False)
    answers: Answers[Any]
    show: Show
    names_of: NamesOf
    if aggregates:
        counts = _counts_beside(aggregates)
        answers = service.compute([*aggregates, *counts], question, by=by, timeout_s=timeout)
        show = json_group if as_json else group_text
        lacking = {each.attribute for each in counts} | ({by} - {""})
        names_of = partial(_names_of_group, counts, by)
    else:
        collated: Any = {} if limit is None else {"limit": limit}
        answers = service.query(question, timeout_s=timeout, sort=sort, distinct=unique, **collated)
        show = partial(_shown, as_json=as_json)
        lacking = {sort.removeprefix("-")} - {""}
        names_of = lacking.intersection
    count = run(_ask(service, answers, show, names_of, lacking))
    if any(each.count for each in answers.reports):
        for name in sorted(lacking):
            click.echo(f"no answer has {name!r}, which an option names", err=True)
    if count != limit and not answers.is_complete:
        missing = [
            escape_controls(each.name) for each in answers.reports if each.state not in _DONE
        ]
        click.echo(f"answers may be missing of: {', '.join(missing)}", err=True)
        raise click.exceptions.Exit(EXIT_INCOMPLETE)


def _counts_beside(aggregates: Sequence[Aggregate]) -> list[Aggregate]:
    """Returns aggregates that count the answers with an attribute: a sum of nothing is 0, too."""
    names = dict.fromkeys(each.attribute for each in aggregates if each.attribute)
    room = max(0, AGGREGATES_MAX - len(aggregates))
    return [Aggregate(AggregateKind.COUNT, name) for name in names][:room]


def _names_of_group(counts: Sequence[Aggregate], by: str, group: dict[str, Any]) -> list[str]:
    """Removes these counts from a group, and returns the attributes that its answers have."""
    found = [each.attribute for each in counts if group.pop(each.name)]
    return [*found, by] if by in group else found


async def _ask(
    service: Service, answers: Answers[Any], show: Show, names_of: NamesOf, lacking: set[str]
) -> int:
    """Prints the answers and returns their number. Removes the names of each from `lacking`."""
    count = 0
    try:
        async with service, answers:
            async for each in answers:
                lacking.difference_update(names_of(each))
                sys.stdout.write(f"{show(each)}\n")
                sys.stdout.flush()
                count += 1
    finally:  # Also by Ctrl-C.
        if answers.has_ended:
            _print_reports(answers.reports)
    return count


def _print_reports(reports: Iterable[SourceReport]) -> None:
    made = table("source", "state", right=("answers",), box=None, pad_edge=False)
    made.add_column("reason", overflow="fold")
    for each in reports:
        name, reason = map(escape_controls, (each.name, each.reason))  # Of one line each.
        made.add_row(name, each.state, str(each.count), reason)
    if not made.row_count:
        click.echo("no source was asked: none within reach describes such data", err=True)
        return
    output(errors=True).print(made)


def _shown(answer: Notification, *, as_json: bool) -> str:
    members = ("@publisher",) if answer.envelope.publisher else ()
    return json_line(answer, members) if as_json else "  ".join(parts_of(answer, members))
