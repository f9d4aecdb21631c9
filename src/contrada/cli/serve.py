"""`contrada serve`: run a broker until it is told to end."""

import asyncio
import signal
from collections.abc import Mapping
from typing import Final

import click
import msgspec

from contrada.cli.extension import extension_option
from contrada.cli.lazy import EXIT_INTERRUPTED
from contrada.cli.logs import log
from contrada.net import PORT_DEFAULT, Broker, BrokerStatistics

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
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="Log who comes and goes and what is refused; -vv: subscriptions.",
)
@click.option("--json", "as_json", is_flag=True, help="Log lines of JSON.")
@extension_option
def serve(host: str, port: int, verbose: int, as_json: bool) -> None:
    """Run a broker.

    Prints its address as one line when it is ready. SIGTERM ends it with status 0, Ctrl-C with
    130; both say goodbye to all clients, and what was done is printed on standard error. It logs
    there, too: its own faults always, with -v who comes and goes, and what is refused.

    \b
    contrada serve
    contrada serve --host 0.0.0.0 --port 9000
    contrada serve --extension geometry.operators:Shapes
    """  # noqa: D301 - click reads the escape
    log(verbose, as_json=as_json)
    status, counts = asyncio.run(_serve(host, port))
    if as_json:
        click.echo(msgspec.json.encode({"level": "info", "statistics": counts}), err=True)
    else:
        click.echo(_summary(counts), err=True)
    raise click.exceptions.Exit(status)


async def _serve(host: str, port: int) -> tuple[int, BrokerStatistics]:
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[int] = loop.create_future()

    def end(number: signal.Signals) -> None:
        if not ending.done():
            ending.set_result(_STATUS[number])

    async with Broker(host, port) as broker:
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
