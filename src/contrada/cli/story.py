"""`contrada story`: the history of a notification, subscription or durable subscription."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.table import Table

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, run
from contrada.cli.lazy_group import EXIT_INCOMPLETE, EXIT_UNMET
from contrada.cli.stats import ask_broker
from contrada.cli.table_output import output, table
from contrada.errors import ContradaError, InputError, shortened
from contrada.model.domains.values import datetime_of, time_us_of
from contrada.service.story import ServerStory, Story, StoryStep, Transition, story_of

LOG_LINE_BYTES_MAX: Final = 2**20
"""Bytes of a line of a log. Beyond it: InputError."""

_ADVICE: Final = (
    "brokers remember the last transitions_max events since their start; ask soon after the event, "
    "with the whole identity, at any broker of the network"
)


@click.command()
@click.argument("identity", metavar="ID")
@click.argument("address", default=options.ADDRESS_DEFAULT, metavar="[ADDRESS]")
@options.repeated(
    "--log logs", "FILE", "Read logs of JSON lines instead; repeatable.", type=options.FILE
)
@options.flag("--json as_json", "As one JSON object.")
@approach_options
def story(
    identity: str, address: str, logs: Sequence[Path], as_json: bool, approach: Approach
) -> None:
    """Show the history of ID through the brokers of a network.

    ID is that of a notification, as `contrada sub --envelope` shows it, the name of a durable
    subscription, or the identity of a subscription as `contrada stats` counts it: CLIENT/IDENTITY.
    The broker at ADDRESS and all others that links name are asked, each for the recent events that
    it remembers: `transitions_max` in [limits.service] of its settings, by default none. Those with
    users answer users with the permission `inspect`. An arrival follows
    its departure; otherwise clocks order the transitions. Gaps are listed below them.

    With --log no broker is asked: the lines of `contrada serve --json`, or of an audit log, with a
    field that is ID are listed.

    The status is 3 if nothing is known of ID, 4 if a broker did not answer.

    \b
    contrada story shop.e86623487d583caf.1
    contrada story orders contrada://10.0.0.7:7655 --json
    contrada story shop.e86623487d583caf.1 --log oslo.log --log riga.log
    """  # noqa: D301 - click reads the escape
    if logs:
        found = {str(path): ServerStory([*_noted(path, identity)]) for path in logs}
        told = story_of(identity, found, {})
    else:
        told = run(ask_broker(address, approach, lambda service: service.story(identity)))
    if as_json:
        click.echo(msgspec.json.encode(told).decode())
    else:
        if told.transitions:
            output().print(_table(told))
        for each in told.notes():
            click.echo(each, err=True)
    if not told.transitions:
        places = "in these files" if logs else "at the brokers that answered"
        advice = "" if logs else f": {_ADVICE}"
        click.echo(f"nothing is known of {shortened(identity)!r} {places}{advice}", err=True)
        raise click.exceptions.Exit(EXIT_UNMET)
    if told.missing:
        raise click.exceptions.Exit(EXIT_INCOMPLETE)


def _table(told: Story) -> Table:
    made = table("time", "broker", "transition", "from", "to", "as", "detail")
    for each in told.transitions:
        time = f"{datetime_of(each.time_us):%Y-%m-%dT%H:%M:%S.%fZ}"
        made.add_row(time, each.broker, each.step, each.origin, each.to, each.name, each.detail)
    return made


def _noted(path: Path, identity: str) -> Iterator[Transition]:
    """Yields the lines of a log with a field of this value. Raises InputError."""
    decoder = msgspec.json.Decoder(dict[str, Any])
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LOG_LINE_BYTES_MAX + 1):
            number += 1
            if len(line) > LOG_LINE_BYTES_MAX:
                limit = (
                    f"line {number} has more than LOG_LINE_BYTES_MAX = {LOG_LINE_BYTES_MAX} bytes"
                )
                raise InputError(str(path), limit)
            if not line.strip():
                continue
            try:
                fields = decoder.decode(line)
                time_us = time_us_of(datetime.fromisoformat(fields["time"]))
            except (msgspec.MsgspecError, KeyError, TypeError, ValueError, ContradaError) as error:
                expected = "expected a JSON object with `time`, as contrada serve --json writes it"
                raise InputError(str(path), f"line {number}: {expected}: {error}") from None
            if identity in fields.values():
                detail = _detail(fields)
                yield Transition(str(path), number, time_us, StoryStep.NOTED, detail=detail)


def _detail(fields: dict[str, Any]) -> str:
    """Returns the message of a line, or the parts of one of an audit log."""
    if "message" in fields:
        return str(fields["message"])
    return " ".join(f"{key}={value}" for key, value in fields.items() if key != "time")
