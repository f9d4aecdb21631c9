"""`contrada doctor`: faults of this installation, of brokers and of files, with remedies."""

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Final

import click
import msgspec

from contrada.cli import shared_options as options
from contrada.cli.broker_findings import Finding, check_broker, check_network
from contrada.cli.broker_settings import BrokerSettings, settings_of, settings_of_network
from contrada.cli.client_command import Approach, approach_options
from contrada.cli.lazy_group import EXIT_UNREACHABLE
from contrada.cli.option_variables import PREFIX, options_of, variable, variables_of
from contrada.errors import ContradaError
from contrada.model.extensions.extended_type import load
from contrada.model.native import INTERPRETED_VARIABLE, NATIVE
from contrada.net.broker.broker import Broker
from contrada.net.wire.address import check_host
from contrada.service.settings import read_toml

_OTHER_VARIABLES: Final = {"CONTRADA_BRIDGE_PASSWORD", "CONTRADA_MQTT_PASSWORD"}
"""Variables below the prefix of a command that are of no option: of `bridge` and `mqtt`."""


@click.command()
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@options.file("--config", "TOML", "The file of contrada serve --config.")
@options.flag("--network", "Check all brokers of the networks of these brokers, and their links.")
@options.flag("--json as_json", "One JSON object per line.")
@approach_options
@click.pass_context
def doctor(
    ctx: click.Context,
    addresses: tuple[str, ...],
    config: str | None,
    network: bool,
    as_json: bool,
    approach: Approach,
) -> None:
    """Check this installation, the brokers at the addresses, and a file for serve.

    Each line is ok, a warning or a fault, with a remedy. The status is 1 after a fault. A file is
    checked as `contrada serve --config` does, with certificates and extensions; a store is not
    opened.

    With --network each broker is asked with the token of this command, at the address that a link
    names. A broker that is not asked, or does not answer, is named with the reason; so are links
    that one side lacks, and different versions.

    \b
    contrada doctor
    contrada doctor contrada://10.0.0.7:7655
    contrada doctor --network contradas://oslo.example --token-file operator.token
    contrada doctor --config contrada.toml --json
    """  # noqa: D301 - click reads the escape
    if network and not addresses:
        raise click.UsageError("--network is for the ADDRESS of a broker")
    check = check_network if network else check_broker
    has_fault = False
    for each in chain(
        _installed(),
        _unread_variables(ctx.find_root()),
        () if config is None else _configured(Path(config)),
        chain.from_iterable(check(address, approach) for address in addresses),
    ):
        has_fault = has_fault or each.level == "fault"
        if as_json:
            click.echo(msgspec.json.encode(each).decode())
        else:
            click.echo(f"{each.level:7}  {each.what}: {each.found}")
            if each.todo:
                click.echo(f"{'':7}  -> {each.todo}")
    if has_fault:
        raise click.exceptions.Exit(EXIT_UNREACHABLE)


def _installed() -> Iterator[Finding]:
    contrada = importlib.metadata.version("contrada")
    yield Finding("ok", "python", f"{platform.python_version()}, contrada {contrada}")
    if NATIVE is not None:
        yield Finding("ok", "kernels", f"compiled, in {NATIVE.__file__}")
        return
    if os.environ.get(INTERPRETED_VARIABLE):
        reason, todo = "kept from being compiled", f"unset {INTERPRETED_VARIABLE}"
    else:
        reason = "contrada._native is not built: matching is slow"
        todo = "install a C compiler and contrada again, or a wheel that has it"
    yield Finding("warning", "kernels", reason, todo)


def _unread_variables(main: click.Context) -> Iterator[Finding]:
    """Yields a warning for each variable that looks like an option of a command, and is none."""
    group = main.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(main):
        below = variable(PREFIX, name) + "_"
        given = {each for each in os.environ if each.startswith(below)}
        if not given:
            continue
        command = group.get_command(main, name)
        assert command is not None, name
        known = {it for each in _all_options(command) for it in variables_of(each)}
        known |= _OTHER_VARIABLES
        for each in sorted(given - known):
            found = "the variable is of no option, and is ignored"
            near = "".join(f"; is it {it}?" for it in get_close_matches(each, known, 1))
            yield Finding("warning", each, found, f"see: contrada {name} --help{near}")


def _all_options(command: click.Command) -> Iterator[click.Option]:
    yield from options_of(command)
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        yield from _all_options(each)


# --- a file ---------------------------------------------------------------------------------------


def _configured(path: Path) -> Iterator[Finding]:
    try:
        if "brokers" in read_toml(path):
            brokers = settings_of_network(path)
        else:
            brokers = {"": settings_of(path, {})}
    except ContradaError as error:
        yield Finding("fault", str(path), str(error).removeprefix(f"{path}: "), "mend the file")
        return
    for name, settings in brokers.items():
        what = f"{path}: brokers.{name}" if name else str(path)
        try:
            address, tls = _made(settings), settings.tls.tls()
            reason = "" if tls is None else tls.why_out_of_date()
        except ContradaError as error:
            yield Finding("fault", what, str(error), "correct that, or serve will refuse it too")
            continue
        if reason:
            yield Finding("fault", what, reason, "replace it: clients and neighbours refuse it")
        else:
            yield Finding("ok", what, f"would listen at {address}")


def _made(settings: BrokerSettings) -> str:
    """Creates the broker of a file without starting it, and returns its address."""
    for extension in settings.extensions:
        load(extension)
    check_host(settings.host)
    Broker(
        settings.host,
        settings.port,
        network=settings.membership(),
        tls=settings.tls.tls(),
        store=settings.place(),
    )
    return str(settings.address)
