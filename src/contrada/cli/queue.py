"""`contrada queue`: the queues of a broker's durable subscriptions, listed, looked at, changed."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import click

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, connect, run
from contrada.cli.notification_output import ENVELOPE, json_line, parts_of
from contrada.cli.stats import ask_broker
from contrada.cli.table_output import print_records, progress_of, table
from contrada.delivery.queue_messages import QueueState
from contrada.model.domains.values import datetime_of
from contrada.net.client.tcp_service import TcpService
from contrada.service.queues import Peek, Queues

_ADDRESS: Final = click.argument("address", default=options.ADDRESS_DEFAULT, metavar="[ADDRESS]")
_NAME: Final = click.argument("name")
_JSON: Final = options.flag("--json as_json", "As JSON, one object a line.")
_YES: Final = options.flag("--yes", "Do not ask.")


@click.group()
def queue() -> None:
    """See and change the queues of durable subscriptions at a broker.

    NAME is that of a durable subscription whose records the broker at ADDRESS keeps. A broker with
    users answers those who may use the name (`durable`); those with `inspect` see the counts of
    all. Of a stopped broker, `contrada store show` lists the logs.

    \b
    contrada queue list
    contrada queue peek orders.dead --count 3
    contrada queue redrive orders.dead
    """  # noqa: D301 - click reads the escape


@queue.command("list")
@_ADDRESS
@_JSON
@approach_options
def list_(address: str, as_json: bool, approach: Approach) -> None:
    """List the queues of a broker, in the order of their names.

    `unread` records wait for a reader, `handed` ones are at readers. `dead` and `damaged` count
    since the start of the broker.
    """
    found = run(ask_broker(address, approach, _all_states))
    print_records(found, queue_table(found), as_json=as_json)


async def _all_states(service: TcpService) -> list[QueueState]:
    page = await service.queues.states()
    found = page.queues
    while page.next:
        page = await service.queues.states(page.next)
        found += page.queues
    return found


def queue_table(states: Iterable[QueueState]) -> Any:
    """Returns a table with a row for each queue."""
    counts = ("unread", "handed", "delayed", "readers", "attempts", "dead", "damaged")
    made = table("queue", "dead letters", "stuck", right=(*counts, "oldest"))
    for each in states:
        oldest = f"{datetime_of(each.oldest_us):%Y-%m-%dT%H:%M:%SZ}" if each.oldest_us else ""
        numbers = (f"{getattr(each, name):,}" for name in counts)
        made.add_row(each.name, each.dead_letter, each.stuck, *numbers, oldest)
    return made


@queue.command()
@_NAME
@_ADDRESS
@_JSON
@approach_options
def show(name: str, address: str, as_json: bool, approach: Approach) -> None:
    """Show the counts of a queue."""
    found = run(ask_broker(address, approach, lambda service: service.queues.state(name)))
    print_records([found], queue_table([found]), as_json=as_json)


@queue.command("peek")
@_NAME
@_ADDRESS
@options.typed("--count", options.COUNT, "N", "Records to show.", 10)
@options.typed("--from first", click.IntRange(1), "POSITION", "Begin at this position.", 1)
@_JSON
@approach_options
def peek_(
    name: str, address: str, count: int, first: int, as_json: bool, approach: Approach
) -> None:
    """Print unacknowledged records of a queue, without reading them.

    Readers still get them, and no attempt counts. `@attempt` is the number of readers that got the
    record so far. Records that the user may not subscribe to are not shown.
    """
    for page in run(ask_broker(address, approach, lambda it: _peek(it, name, count, first))):
        for each in page.records:
            plain = "  ".join(parts_of(each, ENVELOPE[:2]))
            click.echo(json_line(each, ENVELOPE) if as_json else plain)
        for position, reason in page.unreadable.items():
            click.echo(f"{position}: {reason}", err=True)


async def _peek(service: TcpService, name: str, count: int, first: int) -> list[Peek]:
    pages: list[Peek] = []
    while count > 0 and (first or not pages):
        page = await service.queues.peek(name, count, first=first)
        pages.append(page)
        count -= len(page.records) + len(page.unreadable)
        first = page.next
    return pages


@queue.command()
@_NAME
@_ADDRESS
@options.text("--to", "NAME", "Subscription that gets them, if several have their dead letters.")
@approach_options
def redrive(name: str, address: str, to: str | None, approach: Approach) -> None:
    """Move dead letters back to their subscription. They follow its records.

    Their attempts begin anew. Each step of some records is written whole or not at all: after an
    interruption, the same command moves the rest.
    """
    count = _change(address, approach, lambda it, on: it.redrive(name, to=to or "", on_progress=on))
    click.echo(f"moved {_counted(count, 'record')} of {name}")


@queue.command()
@_NAME
@_ADDRESS
@approach_options
def release(name: str, address: str, approach: Approach) -> None:
    """Take the unacknowledged records of a queue from its readers.

    They are handed out again, to any reader, after the delay of the subscription. Use it for a
    reader that hangs. One that still works on a record may acknowledge it, but another reader may
    get that record, too.
    """
    count = run(ask_broker(address, approach, lambda service: service.queues.release(name)))
    click.echo(f"released {_counted(count, 'record')} of {name}")


@queue.command()
@_NAME
@_ADDRESS
@_YES
@approach_options
def purge(name: str, address: str, yes: bool, approach: Approach) -> None:
    """Drop the records of a queue; the durable subscription stays."""
    _confirmed("purge", name, address, approach, yes=yes)
    count = _change(address, approach, lambda it, on: it.purge(name, on_progress=on))
    click.echo(f"purged {_counted(count, 'record')} of {name}")


@queue.command()
@_NAME
@_ADDRESS
@_YES
@approach_options
def remove(name: str, address: str, yes: bool, approach: Approach) -> None:
    """End a durable subscription and delete its records. Its readers end with an error."""
    state = _confirmed("remove", name, address, approach, yes=yes)
    run(ask_broker(address, approach, lambda service: service.unsubscribe(name)))
    click.echo(f"removed {_described(state)}")


def _confirmed(
    change: str, name: str, address: str, approach: Approach, *, yes: bool
) -> QueueState:
    state = run(ask_broker(address, approach, lambda service: service.queues.state(name)))
    if not yes:
        click.confirm(f"{change} {_described(state)}?", abort=True, err=True)
    return state


def _described(state: QueueState) -> str:
    at = (
        f", {state.handed:,} of them at {_counted(state.readers, 'reader')}"
        if state.readers
        else ""
    )
    return f"{state.name}: {_counted(state.unread + state.handed, 'record')}{at}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _change(
    address: str,
    approach: Approach,
    change: Callable[[Queues, Callable[[int], object]], Awaitable[int]],
) -> int:
    """Changes a queue in steps, as long as that takes, and shows the progress on a terminal."""

    async def changed(on_progress: Callable[[int], object]) -> int:
        async with connect(address, approach, reconnect=False) as service:
            return await change(service.queues, on_progress)

    with progress_of("records") as show_progress:
        return run(changed(lambda count: show_progress(count, "")))
