"""`contrada sub`: subscribe from the command line."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, get_args

import click

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, connect, run
from contrada.cli.notification_output import ENVELOPE, Found, item_of, json_line, parts_of
from contrada.cli.rule_alerts import RuleAlerts, sigma_options
from contrada.integrations.files import plain_time
from contrada.integrations.files.subscription_files import DIALECTS
from contrada.model import Notification
from contrada.service import DurableRecord, Service, Subscription, WhenFull
from contrada.service.loop_guards import checked_timeout
from contrada.service.queued_subscription import UNSUBSCRIBED
from contrada.service.security.signatures import Verifier
from contrada.service.subscription_queue import BLOCK

Show: TypeAlias = Callable[[Found], str]
Printing: TypeAlias = Callable[[Subscription[Notification]], Awaitable[None]]


@click.command()
@click.argument("filter_text", metavar="FILTER", required=False)
@options.typed(
    "--from dialect",
    click.Choice([*DIALECTS]),
    None,
    "FILTER is a file, or a directory, of rules of this dialect; print alerts.",
)
@sigma_options
@options.broker_option
@options.end_options
@options.text(
    "--durable",
    "NAME",
    "Name of a durable subscription: continue after its last reader; the broker keeps "
    "notifications meanwhile.",
)
@options.flag("--end", "End the durable subscription, and delete its log.")
@options.typed(
    "--when-full",
    click.Choice(get_args(WhenFull)),
    None,
    "Behaviour of a full queue: publishers wait, or notifications are dropped.",
    BLOCK,
)
@options.file(
    "--verify",
    "KEYS",
    'Print only notifications signed by keys of this file, with lines `desk = "KEY"`.',
)
@options.flag("--json as_json", "One JSON object of attributes per line.")
@options.flag("--envelope", "Print @id, @publisher, @time too; with --durable @position, @attempt.")
@approach_options
@options.extension_option
def sub(
    filter_text: str | None,
    dialect: str | None,
    rules: dict[str, Any],
    to: str,
    count: int | None,
    timeout: float | None,
    seconds: float | None,
    durable: str | None,
    end: bool,
    when_full: WhenFull,
    verify: str | None,
    as_json: bool,
    envelope: bool,
    approach: Approach,
) -> None:
    """Print the notifications that match FILTER, one per line.

    `everything` matches all notifications. `pub --json` publishes the output of --json unchanged:
    {"$time": "2026-11-20T09:30:00Z"}, {"$bytes": "0aff"} and {"$number": "NaN"} represent values
    that JSON does not have, and "$body" is a body that is not the line itself. Drops are reported
    on standard error at the end.

    With --durable a printed line is acknowledged when the next one is requested, or at an orderly
    end; unacknowledged notifications are delivered again. Give the FILTER once, when the
    subscription begins.

    With --from, each line is an alert: the time, the level, title and id of a rule that the
    notification matches, and the attributes. --json prints it as `contrada match` does. Refused
    rules are reported on standard error.

    A lost connection is made again; without --durable, notifications in between are lost.

    \b
    contrada sub "dep_delay > 120 and origin = 'JFK'"
    contrada sub "symbol in ('DIS', 'IBM') or price < 5" --count 10 --seconds 60
    contrada sub everything --json --timeout 5 | jq .price
    contrada sub "symbol = 'DIS'" --durable desk
    contrada sub "symbol = 'DIS'" --verify keys.toml
    contrada sub --from sigma rules/windows --json
    """  # noqa: D301 - click reads the escape
    if end and durable is None:
        raise click.UsageError("--end ends a durable subscription: name it with --durable NAME")
    if filter_text is None and durable is None:
        raise click.UsageError("Missing argument 'FILTER'; `everything` matches all")
    if filter_text is None and verify is not None:
        raise click.UsageError("--verify needs the FILTER, also of an existing subscription")
    if dialect is not None and (filter_text is None or verify or envelope):
        raise click.UsageError("--from needs rules, and excludes --verify and --envelope")
    service = connect(to, approach)
    if end:
        run(_end(service, str(durable)))
        return
    show: Show = partial(as_json_line if as_json else as_plain_line, envelope=envelope)
    named = {} if durable is None else {"durable": durable}
    subject, show = _asked(filter_text, dialect, rules, verify, show, as_json=as_json)
    printing = partial(print_each, left=count, timeout_s=checked_timeout(timeout), show=show)
    asked = partial(service.subscribe, subject, when_full=when_full, **named)
    running = _subscribe(service, asked, checked_timeout(seconds, "seconds"), printing)
    run(running, is_endless={count, timeout, seconds} == {None})


def _asked(
    filter_text: str | None,
    dialect: str | None,
    rules: Mapping[str, Any],
    verify: str | None,
    show: Show,
    *,
    as_json: bool,
) -> tuple[Any, Show]:
    """Returns the subject of the subscription, and the function that shows a notification."""
    if dialect is not None:
        alerts = RuleAlerts(Path(filter_text or ""), dialect, **rules)
        return alerts.filters, lambda it: "\n".join(alerts.lines(item_of(it), as_json=as_json))
    if verify is not None:
        return Verifier.of_file(verify).only(filter_text or ""), show
    return filter_text, show


async def _end(service: Service, durable: str) -> None:
    async with service:
        await service.unsubscribe(durable)


async def _subscribe(
    service: Service, asked: Callable[[], Any], seconds: float | None, printing: Printing
) -> None:
    wanted = asked()  # Raises for a wrong filter before connecting.
    try:
        async with service, wanted as events:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await printing(events)
    finally:  # Also after Ctrl-C. Only now all losses are known, those at the broker too.
        print_losses(wanted.statistics().dropped)


async def print_each(
    events: Subscription[Notification], left: int | None, timeout_s: float | None, show: Show
) -> None:
    """Prints notifications until `count` is reached or `timeout` seconds pass without one."""
    while left is None or left > 0:
        try:
            async with asyncio.timeout(timeout_s):
                found: Any = await anext(events)
        except (TimeoutError, StopAsyncIteration):
            return
        is_kept = isinstance(found, DurableRecord)
        shown = show(found)
        if shown:  # No rule may match: residues decide only now.
            sys.stdout.write(shown + "\n")
        if is_kept or not events.statistics().queued:  # Acknowledged records were printed.
            sys.stdout.flush()
        left = None if left is None else left - bool(shown)


def print_losses(dropped: Mapping[str, int]) -> None:
    """Prints the dropped notifications, by reason, on standard error."""
    for reason, lost in dropped.items():
        if reason != UNSUBSCRIBED:  # Not a loss: the command has ended.
            click.echo(f"{lost} dropped: {reason}", err=True)


def as_json_line(found: Found, *, envelope: bool) -> str:
    """Returns the line of `--json` for a notification or a record."""
    return json_line(found, ENVELOPE if envelope else ())


def as_plain_line(found: Found, *, envelope: bool = False) -> str:
    """Returns the line for a notification or a record without `--json`."""
    named = ("@id", "@publisher") if envelope else ()
    return "  ".join((plain_time(item_of(found)) or "", *parts_of(found, named)))
