"""`contrada console`: the console without a broker of one's own: one in this process serves it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import click

from contrada.cli import shared_options as options
from contrada.cli.client_command import run
from contrada.net.broker.broker import Broker

if TYPE_CHECKING:
    from contrada.gossip.udp.gossip_node import GossipNode

PORT_DEFAULT: Final = 8080


@click.command()
@options.typed(
    "--port", options.PORT, None, "Port of the page; 0 chooses a free one.", PORT_DEFAULT
)
@options.flag("--open opens", "Open the page in the browser of this machine.")
def console(port: int, opens: bool) -> None:
    """Serve the console on this machine, until Ctrl-C; its address is printed.

    The playground tries filters, rules of other dialects and patterns on records that are pasted
    into the page. Nothing leaves this machine. A broker has its console at its HTTP port: see
    `contrada serve --http`.
    """
    run(_serve(port, opens), is_endless=True)


async def _serve(port: int, opens: bool) -> None:
    async with serve_console(port) as address:
        click.echo(address)
        if opens:
            click.launch(address)
        await asyncio.Event().wait()


@asynccontextmanager
async def serve_console(port: int, groups: "Sequence[GossipNode]" = ()) -> AsyncIterator[str]:
    """Serves the console on this machine, with the groups of participants; yields its address."""
    from contrada.integrations.http import Gateway, local_services  # An extra has its libraries.

    async with (
        Broker(port=0) as broker,
        Gateway(local_services(broker), port=port, groups=groups) as gateway,
    ):
        yield f"{gateway.address}/console/"
