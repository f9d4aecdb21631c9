"""`contrada network`: the brokers that a file describes, each as a process of `contrada serve`."""

import asyncio
import sys
from pathlib import Path
from typing import Final

import click

from contrada.cli.broker_settings import settings_of_network
from contrada.cli.processes import Processes

BROKER_END_WAIT_S: Final = 15.0
"""How long a broker may take to end when its network is stopped: longer than HANDOVER_WAIT_S and
STOP_WAIT_S together. Beyond it: it is killed."""


@click.group()
def network() -> None:
    """Start the brokers of a network that a file describes.

    What stands at the top is true of all its brokers, each has a table of its own beside; the keys
    are those of `contrada serve --config`. A neighbour is named by its name here.

    \b
    general = true

    [brokers.oslo]
    port = 7701

    [brokers.riga]
    port = 7702
    neighbours = ["oslo"]

    [brokers.bern]
    port = 7703
    neighbours = ["oslo", { to = "riga", cost = 3 }]

    A machine of its own for a broker takes the same file:
    contrada serve --config network.toml --name bern
    """  # noqa: D301 - click reads the escape


@network.command()
@click.argument("file", type=click.Path(dir_okay=False), metavar="TOML")
def check(file: str) -> None:
    """Look whether a file describes a network, and start nothing."""
    brokers = settings_of_network(Path(file))
    links = sum(len(each.neighbours) for each in brokers.values())
    click.echo(f"{len(brokers)} brokers, {links} links")


@network.command()
@click.argument("file", type=click.Path(dir_okay=False), metavar="TOML")
@click.option("-v", "--verbose", count=True, help="Their logs say more, as those of serve.")
def up(file: str, verbose: int) -> None:
    """Start all brokers that a file describes, and stop them at Ctrl-C or SIGTERM.

    Prints name and address of each when it is ready; what they log stands on standard error,
    behind their names. Where one ends by itself all others are stopped, and the status is 1. At
    SIGHUP they all read the file again. They end in order, the last first; a second Ctrl-C kills.
    They end, too, when this command is killed.

    \b
    contrada network up examples/networks/seven.toml
    """  # noqa: D301 - click reads the escape
    brokers = settings_of_network(Path(file))
    serve = [sys.executable, "-m", "contrada", "serve", "--config", file]
    serve.append("--until-input-ends")  # When this ends, however it does.
    serve += ["-" + "v" * verbose] if verbose else []
    commands = [(name, [*serve, "--name", name]) for name in brokers]
    raise click.exceptions.Exit(asyncio.run(Processes(BROKER_END_WAIT_S).run(commands)))
