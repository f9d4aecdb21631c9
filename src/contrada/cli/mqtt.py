"""`contrada mqtt`: the former name of `contrada bridge mqtt`."""

import os
import re

import click

from contrada.cli.bridge import PASSWORD_VARIABLE

FORMER_VARIABLE = "CONTRADA_MQTT_PASSWORD"

_FORMER = re.compile(r"^--mqtt-")


@click.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True}, options_metavar=""
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def mqtt(ctx: click.Context, options: tuple[str, ...]) -> None:
    """Bridge topics of MQTT: the former name of `contrada bridge mqtt`.

    Its options --mqtt-authority, --mqtt-certificate and --mqtt-key are --peer-… there, and the
    variable CONTRADA_MQTT_PASSWORD is CONTRADA_BRIDGE_PASSWORD. It prints the counts at the end.
    """
    click.echo("contrada mqtt is contrada bridge mqtt now", err=True)
    if FORMER_VARIABLE in os.environ:
        os.environ.setdefault(PASSWORD_VARIABLE, os.environ[FORMER_VARIABLE])
    renamed = [_FORMER.sub("--peer-", each) for each in options]
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    bridge = root.command.get_command(root, "bridge")  # With its environment variables.
    assert bridge is not None
    with bridge.make_context("bridge", ["mqtt", "--stats", *renamed], root) as inner:
        bridge.invoke(inner)
