"""`contrada inspect`: the state of a broker, and the route of a notification."""

from collections.abc import Sequence

import click
import msgspec
from rich.table import Table

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, run
from contrada.cli.stats import ask_broker
from contrada.cli.table_output import output
from contrada.integrations.files import BadRecord, notification_of_shown
from contrada.integrations.files.record import record_of
from contrada.net.wire.inspection import HeldText, Inspection
from contrada.net.wire.payload_codec import encode_content


@click.command()
@click.argument("address", default=options.ADDRESS_DEFAULT, metavar="[ADDRESS]")
@options.text("--notification", "JSON", "Show the route of this notification.")
@options.flag("--json as_json", "As one JSON object.")
@approach_options
def inspect(address: str, notification: str | None, as_json: bool, approach: Approach) -> None:
    """Show the state of the broker at ADDRESS: links, clients, filters and advertisements.

    The first entries of each are listed, with their origin: a client by its number at the broker, a
    neighbour, or a pattern that is assembled there. With --notification, an object as for `pub
    --json`, only the route of that notification is shown, with the filters that match it; nothing
    is published. A broker with users answers those with the permission `inspect`.

    \b
    contrada inspect contrada://10.0.0.7:7655
    contrada inspect --notification '{"symbol": "DIS", "price": 61.5}'
    """  # noqa: D301 - click reads the escape
    packed = b""
    if notification is not None:
        record = record_of(notification_of_shown, "--notification", 1, notification)
        if isinstance(record, BadRecord):
            raise record.error()
        packed = encode_content(record.notification)
    found = run(ask_broker(address, approach, lambda service: service.inspection(packed)))
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    elif notification is None:
        _show_held(found)
    else:
        _show_journey(found)


def _show_held(found: Inspection) -> None:
    console = output()
    links = Table("link", "role", "cost", "used")
    for link in found.links:
        links.add_row(link.name, link.role, str(link.cost), link.unused or "yes")
    clients = Table("client", "subscriptions")
    for name, count in found.clients.items():
        clients.add_row(name, f"{count:,}")
    for name, table in (
        ("links", links),
        ("clients", clients),
        ("filters", _table("filter", "asked for by", found.filters)),
        ("advertisements", _table("advertisement", "advertised by", found.advertisements)),
    ):
        console.print(f"{found.counts[name]:,} {name}{_of(found.counts[name], table.row_count)}")
        if table.row_count:
            console.print(table)


def _show_journey(found: Inspection) -> None:
    console = output()
    if not (found.matching or found.neighbours):
        console.print("it goes nowhere: no filter matches it")
        return
    neighbours = ", ".join(found.neighbours) or "no neighbour"
    count = found.counts["matching"]
    what = f"{count:,} filter{'s' * (count != 1)}{_of(count, len(found.matching))}"
    console.print(f"it goes to {neighbours}, and matches {what}")
    console.print(_table("filter", "asked for by", found.matching))


def _of(count: int, shown: int) -> str:
    return f", of which the first {shown}:" if shown < count else ""


def _table(first: str, second: str, held: Sequence[HeldText]) -> Table:
    table = Table(first, second)
    for each in held:
        table.add_row(each.text, ", ".join(each.parties))
    return table
