"""`contrada inspect`: the state of a broker, and the route of a notification."""

from collections.abc import Sequence

import click
import msgspec
from rich.table import Table

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, run
from contrada.cli.queue import queue_table
from contrada.cli.stats import ask_broker
from contrada.cli.table_output import output, table
from contrada.integrations.files import BadRecord, notification_of_shown
from contrada.integrations.files.match_diagnosis import EXPLAINED_MAX
from contrada.integrations.files.record import record_of
from contrada.model.algebra.filter import Filter
from contrada.model.algebra.match_explanation import MatchExplanation, explain_match
from contrada.model.algebra.notification import Notification
from contrada.model.codec import from_msgpack
from contrada.net.client.tcp_service import TcpService, read_subscriptions
from contrada.net.wire.inspection import HeldText, Inspection
from contrada.net.wire.payload_codec import encode_content


@click.command()
@click.argument("address", default=options.ADDRESS_DEFAULT, metavar="[ADDRESS]")
@options.text("--notification", "JSON", "Show the route of this notification.")
@options.flag("--why", "With --notification: explain the nearest filters that it does not match.")
@options.flag("--json as_json", "As one JSON object.")
@approach_options
def inspect(
    address: str, notification: str | None, why: bool, as_json: bool, approach: Approach
) -> None:
    """Show the state of the broker at ADDRESS: links, clients, filters, advertisements, queues.

    The first entries of each are listed, with their origin: a client by its number at the broker, a
    neighbour, or a pattern that is assembled there. With --notification, an object as for `pub
    --json`, only the route of that notification is shown, with the filters that match it; nothing
    is published. With --why, all filters of the broker's clients are fetched, and the nearest ones
    that do not match are explained. A broker with users answers those with the permission
    `inspect`.

    \b
    contrada inspect contrada://10.0.0.7:7655
    contrada inspect --notification '{"symbol": "DIS", "price": 61.5}' --why
    """  # noqa: D301 - click reads the escape
    if why and notification is None:
        raise click.UsageError("--why is for --notification")
    packed, subject = b"", Notification({})
    if notification is not None:
        record = record_of(notification_of_shown, "--notification", 1, notification)
        if isinstance(record, BadRecord):
            raise record.error()
        subject = record.notification
        packed = encode_content(subject)

    async def ask(service: TcpService) -> tuple[Inspection, list[MatchExplanation]]:
        found = await service.inspection(packed)
        return found, await _nearest(service, subject) if why else []

    found, explained = run(ask_broker(address, approach, ask))
    lines = [str(each) for each in explained[:EXPLAINED_MAX]]
    if as_json:
        click.echo(msgspec.json.encode(msgspec.to_builtins(found) | {"why": lines}).decode())
        return
    if notification is None:
        _show_held(found)
    else:
        _show_journey(found)
    for each in lines:
        click.echo(each)
    if len(explained) > EXPLAINED_MAX:
        click.echo(f"and {len(explained) - EXPLAINED_MAX:,} other filters do not match")


async def _nearest(service: TcpService, subject: Notification) -> list[MatchExplanation]:
    """Returns the explanations of all filters without a match, fewest failing constraints first."""
    held = {packed for _, filters in await read_subscriptions(service) for packed in filters}
    filters = (each for each in map(from_msgpack, sorted(held)) if isinstance(each, Filter))
    explained = (explain_match(each, subject) for each in filters)
    return sorted(
        (each for each in explained if not each),
        key=lambda each: sum(not result.holds for result in each.constraints),
    )


def _show_held(found: Inspection) -> None:
    console = output()
    links = table("link", "role", "cost", "used", "address")
    for link in found.links:
        links.add_row(link.name, link.role, str(link.cost), link.unused or "yes", link.address)
    clients = table("client", "subscriptions")
    for name, count in found.clients.items():
        clients.add_row(name, f"{count:,}")
    for name, made in (
        ("links", links),
        ("clients", clients),
        ("filters", _table("filter", "asked for by", found.filters)),
        ("advertisements", _table("advertisement", "advertised by", found.advertisements)),
        ("queues", queue_table(found.queues)),
    ):
        console.print(f"{found.counts[name]:,} {name}{_of(found.counts[name], made.row_count)}")
        if made.row_count:
            console.print(made)


def _show_journey(found: Inspection) -> None:
    console = output()
    if refusal := found.stopped or found.not_yours:
        console.print(f"it would be refused: {refusal}")
    if not (found.matching or found.neighbours):
        console.print("no filter matches it: nobody gets it")
        return
    neighbours = ", ".join(found.neighbours) or "no neighbour"
    count = found.counts["matching"]
    what = f"{count:,} filter{'s' * (count != 1)}{_of(count, len(found.matching))}"
    console.print(f"it goes to {neighbours}, and matches {what}")
    console.print(_table("filter", "asked for by", found.matching))


def _of(count: int, shown: int) -> str:
    return f", of which the first {shown}:" if shown < count else ""


def _table(first: str, second: str, held: Sequence[HeldText]) -> Table:
    made = table(first, second)
    for each in held:
        made.add_row(each.text, ", ".join(each.parties))
    return made
