"""`contrada network`: the brokers of a file, each as a process of `contrada serve`."""

import asyncio
import sys
from pathlib import Path
from typing import Final

import click

from contrada.cli import shared_options as options
from contrada.cli.broker_settings import settings_of_network
from contrada.cli.processes import Processes

BROKER_END_WAIT_S: Final = 15.0
"""Seconds for a broker to end when its network is stopped: longer than HANDOVER_WAIT_S and
STOP_WAIT_S together. Beyond it: it is killed.
"""


@click.group()
def network() -> None:
    """Start the brokers of a network file.

    Settings at the top are common to all brokers; each broker has a table with its own. The keys
    are those of `contrada serve --config`. A neighbour is named by its name in the file.

    \b
    general = true

    \b
    [brokers.oslo]
    port = 7701

    \b
    [brokers.riga]
    port = 7702
    neighbours = ["oslo"]

    \b
    [brokers.bern]
    port = 7703
    neighbours = ["oslo", { to = "riga", cost = 3 }]

    The same file starts one broker on its own machine, and is checked without a start:

    \b
    contrada serve --config network.toml --name bern
    contrada doctor --config network.toml
    """  # noqa: D301 - click reads the escape


@network.command()
@click.argument("file", type=options.FILE_NAME, metavar="TOML")
@options.verbose("Log level of the brokers, as for serve.")
def up(file: str, verbose: int) -> None:
    """Start all brokers of a file, and stop them at Ctrl-C or SIGTERM.

    Prints name and address of each broker when it is ready; their logs follow their names on
    standard error. If one ends, all others are stopped, and the status is 1. At SIGHUP all read the
    file again. They are stopped in reverse order; a second Ctrl-C kills them. They also end when
    this command is killed.

    \b
    contrada network up examples/networks/seven.toml
    """  # noqa: D301 - click reads the escape
    brokers = settings_of_network(Path(file))
    serve = [sys.executable, "-m", "contrada", "serve", "--config", file]
    serve.append("--until-input-ends")  # So brokers end with this process, however it ends.
    serve += ["-" + "v" * verbose] if verbose else []
    commands = [(name, [*serve, "--name", name]) for name in brokers]
    raise click.exceptions.Exit(asyncio.run(Processes(BROKER_END_WAIT_S).run(commands)))
