"""`contrada serve`: run a broker until it is told to end."""

import asyncio
import signal
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import click
import msgspec

from contrada.cli.extension import extension_option
from contrada.cli.lazy import EXIT_INTERRUPTED
from contrada.cli.logs import log
from contrada.net import PORT_DEFAULT, Broker, BrokerStatistics, parse_address
from contrada.net.neighbours import Membership, Wanted
from contrada.routing.links.topology import TREES_MAX
from contrada.routing.messages import Role

MEMORY: Final = "memory:"
"""The place of a store that keeps nothing over a restart."""

_STATUS: Final = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: 0}


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    default=PORT_DEFAULT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="0 takes a free one.",
)
@click.option("--name", default="", help="What other brokers call it: a network needs names.")
@click.option("--neighbour", multiple=True, metavar="ADDRESS", help="A broker to be linked to.")
@click.option("--parent", metavar="ADDRESS", help="The broker above it, in a hierarchy.")
@click.option("--general", is_flag=True, help="Links between peers may close cycles.")
@click.option(
    "--trees",
    default=1,
    show_default=True,
    type=click.IntRange(0, TREES_MAX),
    help="With --general: trees that all brokers share; 0: shortest paths, for few brokers.",
)
@click.option(
    "--sequencer", default="", metavar="NAME", help="Who gives total orders; at all alike."
)
@click.option(
    "--store",
    metavar="PLACE",
    help="Where it keeps what is durable or certified: a file, postgresql://user@host/database, or "
    "memory: for nowhere. contrada.db if nothing is said, contrada-NAME.db with a name; a file is "
    "made with the first promise.",
)
@click.option("--merging", is_flag=True, help="Join what is told to neighbours, where exact.")
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="Log who comes and goes and what is refused; -vv: subscriptions.",
)
@click.option("--json", "as_json", is_flag=True, help="Log lines of JSON.")
@extension_option
def serve(
    host: str,
    port: int,
    name: str,
    neighbour: tuple[str, ...],
    parent: str | None,
    general: bool,
    trees: int,
    sequencer: str,
    store: str | None,
    merging: bool,
    verbose: int,
    as_json: bool,
) -> None:
    """Run a broker, alone or in a network.

    Prints its address as one line when it is ready. SIGTERM ends it with status 0, Ctrl-C with
    130; both say goodbye to all clients, and what was done is printed on standard error. It logs
    there, too: its own faults always, with -v who comes and goes, and what is refused.

    What is durable or certified outlives a crash, in its store.

    Brokers of a network have names. A link is made by one of its two ends, and made again when
    it breaks; a neighbour that is away is tried until it is there. --general and --trees must
    be the same at all of them: where they are not, -v says so.

    \b
    contrada serve
    contrada serve --host 0.0.0.0 --port 9000
    contrada serve --store /var/lib/contrada/events.db
    contrada serve --name north --port 7701
    contrada serve --name south --port 7702 --neighbour contrada://127.0.0.1:7701
    contrada serve --extension geometry.operators:Shapes
    """  # noqa: D301 - click reads the escape
    log(verbose, as_json=as_json)
    wanted = [Wanted(parse_address(each)) for each in neighbour]
    wanted += [Wanted(parse_address(parent), Role.PARENT)] if parent else []
    if wanted and not name:
        raise click.UsageError("a broker with neighbours or a parent has a name: add --name NAME")
    if general and not name:
        raise click.UsageError("a broker of a general network has a name: add --name NAME")
    network = Membership(
        name,
        general=general,
        trees=trees if general else 0,
        merging=merging,
        sequencer=sequencer,
        neighbours=tuple(wanted),
    )
    store = store or (f"contrada-{quote(name, safe='')}.db" if name else "contrada.db")
    place = None if store == MEMORY else store
    status, counts = asyncio.run(_serve(host, port, network, place))
    if as_json:
        click.echo(msgspec.json.encode({"level": "info", "statistics": counts}), err=True)
    else:
        click.echo(_summary(counts), err=True)
    raise click.exceptions.Exit(status)


async def _serve(
    host: str, port: int, network: Membership, store: str | None
) -> tuple[int, BrokerStatistics]:
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[int] = loop.create_future()

    def end(number: signal.Signals) -> None:
        if not ending.done():
            ending.set_result(_STATUS[number])

    async with Broker(host, port, network=network, store=store) as broker:
        for number in _STATUS:
            loop.add_signal_handler(number, end, number)
        click.echo(broker.address)
        status = await ending
    return status, broker.statistics()


def _summary(counts: BrokerStatistics) -> str:
    head = (
        f"{counts.connections_total} connections, {counts.published} notifications published, "
        f"{counts.matched} matches"
    )
    listed = {
        "dropped": counts.dropped,
        "refused": counts.refused,
        "safe answers": counts.safe_answers,
        "failed operators": counts.operator_failures,
    }
    return "; ".join((head, *(f"{what}: {_list(each)}" for what, each in listed.items())))


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
