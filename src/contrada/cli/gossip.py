"""`contrada gossip`: groups of participants that gossip over UDP."""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from contrada.cli import shared_options as options
from contrada.cli.client_command import connect, run
from contrada.cli.console import serve_console
from contrada.cli.log_output import log_option
from contrada.cli.publication_source import arriving
from contrada.cli.sub import as_json_line, print_each, print_losses
from contrada.errors import InvalidValueError
from contrada.gossip.addresses import AddressSpace, LogicalAddress, address_text
from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.group_policy import GroupPolicy
from contrada.gossip.parameters import Parameters
from contrada.gossip.udp.datagram_seal import GroupKey
from contrada.gossip.udp.gossip_group import (
    GOSSIP_PORT_DEFAULT,
    PROTOCOLS,
    USUAL,
    GossipGroup,
    check_own_host,
    own_host,
    resolve_place,
    split_place,
)
from contrada.gossip.udp.gossip_node import GossipNode
from contrada.gossip.udp.group_bridge import GroupBridge
from contrada.integrations.files import BadRecord, ReadOptions, notification_of_shown
from contrada.integrations.files.json_objects import read_objects
from contrada.service import filters_of
from contrada.service.loop_guards import first_of

_IP: Final = "ip"
_PORT_BITS: Final = 16


@click.group()
def gossip() -> None:
    """Groups of participants that gossip events over UDP, without brokers.

    All participants share one key and the same group options (--protocol to --constant). Other
    options make another group, which receives nothing of this one. An event reaches its subscribers
    with a high probability; `contrada help gossip` computes it.

    \b
    contrada gossip key group.key
    contrada gossip start --key group.key --subscribe "price < 100"
    contrada gossip join 127.0.0.1:7656 --key group.key --subscribe everything
    echo '{"symbol": "DIS", "price": 61.5}' |
        contrada gossip join 127.0.0.1:7656 --key group.key --publish
    """  # noqa: D301 - click reads the escape


@gossip.command()
@click.argument("file", required=False, type=options.FILE_NAME, metavar="[FILE]")
def key(file: str | None) -> None:
    """Create a random key. Print it, or write it to a FILE that only you can read.

    The key allows its holder to read and publish all events of the group.
    """
    made = GroupKey.new()
    if file is None:
        click.echo(made.text)
    else:
        made.write(file)


_group_options: Final = options.joined(
    click.option("--protocol", type=click.Choice(sorted(PROTOCOLS)), default="hpmcast"),
    options.typed(
        "--period",
        click.FloatRange(1, 3_600_000),
        "MS",
        "P, milliseconds between two rounds.",
        USUAL.period_us / 1000,
    ),
    click.option("--fanout", default=USUAL.fanout, help="F, participants chosen in a round."),
    click.option("--levels", type=int, help="l, digits of an address. [default: 4]"),
    click.option("--branching", type=int, help="a, values of a digit. [default: 64]"),
    click.option("--redundancy", default=USUAL.redundancy, help="R, delegates of a subsystem."),
    click.option("--loss", default=USUAL.loss, help="ε, share of lost messages."),
    click.option("--crashes", default=USUAL.crashes, help="τ, share of participants that crash."),
    click.option(
        "--audience",
        default=USUAL.audience,
        help="D, least number of interested participants assumed where one is interested.",
    ),
    click.option("--constant", default=USUAL.constant, help="c, rounds beyond the expected ones."),
)
"""Group options, the same for all participants."""

_own_options: Final = options.joined(
    options.file(
        "--key key_file",
        "FILE",
        "Key of the group, from `contrada gossip key FILE`.",
        required=True,
    ),
    options.text(
        "--at",
        "HOST:PORT",
        "IP address of this machine and port for other participants. Default: the address "
        "used to reach the group, and a free port.",
    ),
    options.text(
        "--address",
        "DIGITS",
        "Position in the hierarchy: l digits joined by dots, or `ip` at all participants for "
        "their IP address and port (l = 6, a = 256). Default: random.",
    ),
    options.text("--publisher", "NAME", "Name of the publisher; default: random."),
    options.typed(
        "--wait",
        click.FloatRange(0.1, 3_600),
        "S",
        "Seconds to ask for a position in the group.",
        GossipLimits().group_join_wait_s,
    ),
    options.typed(
        "--http",
        options.PORT,
        None,
        "Port of the console on this machine, with the tree of the group; 0 chooses a free one.",
    ),
    log_option,
)
_subscription_options: Final = options.joined(
    options.text("--subscribe", "FILTER", "Print matching events as JSON lines."),
    options.flag("--publish", "Publish the JSON lines of standard input."),
    click.option("--count", type=options.COUNT, metavar="N", help="End after N printed events."),
    options.flag("--envelope", "Print @id, @publisher and @time too."),
    options.extension_option,
)


@gossip.command()
@_subscription_options
@_own_options
@_group_options
def start(**given: Any) -> None:
    """Start a group with one participant. Default: on port 7656 of 127.0.0.1.

    Its address is printed on standard error. It leaves at Ctrl-C; the group continues without it.

    \b
    contrada gossip start --key group.key --at 10.0.0.7:7656
    """  # noqa: D301 - click reads the escape
    given["at"] = given["at"] or f"127.0.0.1:{GOSSIP_PORT_DEFAULT}"
    _participate((), **given)


@gossip.command()
@click.argument("places", nargs=-1, required=True, metavar="HOST:PORT...")
@_subscription_options
@_own_options
@_group_options
def join(places: tuple[str, ...], **given: Any) -> None:
    """Join the group of the participant at HOST:PORT. Of several, one must answer.

    It leaves at Ctrl-C. With --publish and without --subscribe it leaves when standard input has
    ended and its events are sent. The group options must be those of all other participants.

    \b
    contrada gossip join 10.0.0.7:7656 --key group.key --subscribe "symbol = 'DIS'"
    """  # noqa: D301 - click reads the escape
    _participate(places, **given)


@gossip.command()
@click.option("--broker", default=options.ADDRESS_DEFAULT, metavar="ADDRESS", help="The broker.")
@options.repeated("--group places", "HOST:PORT", "Address of a participant.", required=True)
@options.text("--to-group", "FILTER", "Filter for notifications sent to the group.")
@options.text("--to-broker", "FILTER", "Filter for events sent to the broker.")
@_own_options
@_group_options
@options.extension_option
def bridge(
    broker: str,
    places: tuple[str, ...],
    to_group: str | None,
    to_broker: str | None,
    http: int | None,
    **given: Any,
) -> None:
    """Forward notifications between a broker and a group, until Ctrl-C.

    They keep their identity, and none returns to its origin.

    \b
    contrada gossip bridge --broker contrada://10.0.0.5 --group 10.0.0.7:7656 --key group.key \\
        --to-group "symbol prefix 'D'" --to-broker "alarm any"
    """  # noqa: D301 - click reads the escape
    if to_group is None and to_broker is None:
        raise click.UsageError("give a direction: --to-group FILTER, --to-broker FILTER, or both")
    for text in (to_group, to_broker):
        if text is not None:
            filters_of(text)  # Raises for a wrong filter before connecting.
    node = _node_of(places, **given)

    async def forward() -> None:
        service = connect(broker)
        async with service, node:
            carrying = GroupBridge(service, node, to_group=to_group, to_service=to_broker)
            try:
                await carrying.run(partial(_print_place, node))
            finally:
                for name, count in sorted(carrying.counts.items()):
                    click.echo(f"{count} {name}", err=True)

    run(forward(), is_endless=True)


def _node_of(
    places: tuple[str, ...],
    *,
    key_file: str,
    at: str | None,
    address: str | None,
    publisher: str | None,
    wait: float,
    protocol: Any,
    **parameters: Any,
) -> GossipNode:
    """Returns the participant of the options. Raises ContradaError for wrong ones."""
    secret = GroupKey.of_file(Path(key_file))
    space: AddressSpace | None = None
    digits: LogicalAddress | None = None
    if address == _IP:
        at = asyncio.run(_placed(places, at))
        host, port = split_place(at)
        version = 6 if ":" in host else 4
        space = AddressSpace.of_hosts(port_bits=_PORT_BITS, version=version)
        digits = space.of_host(host, port, port_bits=_PORT_BITS)
    elif address is not None:
        try:
            digits = tuple(int(digit) for digit in address.split("."))
        except ValueError:
            reason = "an address: digits joined by dots, for example 3.0.21, or `ip`"
            raise InvalidValueError(address, reason) from None
    group = GossipGroup(protocol, _parameters(protocol, space, **parameters), GroupPolicy(), space)
    return GossipNode(
        secret,
        group,
        join=places,
        at=at,
        address=digits,
        publisher=publisher,
        limits=GossipLimits(group_join_wait_s=wait),
    )


def _parameters(
    protocol: str, space: AddressSpace | None, period: float, **given: Any
) -> Parameters:
    levels, branching = given.pop("levels"), given.pop("branching")
    usual = (USUAL.levels, USUAL.branching) if protocol == "hpmcast" else (1, 10_000)
    if space is not None:
        usual = space.levels, space.radix(1)
        for letter, value, fixed in (("l", levels, usual[0]), ("a", branching, usual[1])):
            if value not in (None, fixed):
                reason = f"{letter} is {fixed} where addresses are of IP address and port"
                raise InvalidValueError(value, reason)
    return Parameters(
        period_us=round(period * 1000),
        levels=usual[0] if levels is None else levels,
        branching=usual[1] if branching is None else branching,
        **given,
    )


async def _placed(places: tuple[str, ...], at: str | None) -> str:
    """Returns a provisional position; the address of the participant is derived from it."""
    if at is None:
        at = f"{own_host(await resolve_place(places[0]))}:0"
    host, port = split_place(at)
    host = check_own_host(host)
    if port == 0:
        port = 49_152 + secrets.randbelow(16_384)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _participate(
    places: tuple[str, ...],
    *,
    subscribe: str | None,
    publish: bool,
    count: int | None,
    envelope: bool,
    http: int | None,
    **given: Any,
) -> None:
    if subscribe is None and (count is not None or envelope):
        raise click.UsageError("--count and --envelope are for --subscribe FILTER")
    show = partial(as_json_line, envelope=envelope)
    node = _node_of(places, **given)

    async def take_part() -> None:
        wanted = None if subscribe is None else node.subscribe(subscribe)
        try:
            async with node, _console(node, http):
                works = []
                if wanted is not None:
                    await wanted.open()
                    works.append(print_each(wanted, count, None, show))
                if publish:
                    works.append(_publish_lines(node, stays=wanted is not None))
                _print_place(node)
                if works:
                    await first_of(*works)
                else:
                    await asyncio.Event().wait()
        finally:
            if wanted is not None:
                print_losses(wanted.statistics().dropped)

    run(take_part(), is_endless=count is None)


@asynccontextmanager
async def _console(node: GossipNode, port: int | None) -> AsyncIterator[None]:
    """Serves the console, if asked for, with the group of a participant."""
    if port is None:
        yield
        return
    async with serve_console(port, (node,)) as address:
        click.echo(f"console at {address}#gossip", err=True)
        yield


async def _publish_lines(node: GossipNode, *, stays: bool) -> None:
    """Publishes standard input. Raises InputError for a bad line, after the lines before it."""
    try:
        async for block in arriving(sys.stdin.buffer):
            source, make = "standard input", notification_of_shown
            for record in read_objects([block], source, ReadOptions(), make):
                if isinstance(record, BadRecord):
                    raise record.error()
                await node.publish(record.notification)
    finally:
        await node.spread()
        click.echo(f"published {node.statistics().published}", err=True)
    if stays:
        await asyncio.Event().wait()


def _print_place(node: GossipNode) -> None:
    found = node.statistics()
    click.echo(f"in the group at {found.place}, address {address_text(found.address)}", err=True)
