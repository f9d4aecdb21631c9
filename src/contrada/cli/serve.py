"""`contrada serve`: run a broker until it is told to end."""

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from click.core import ParameterSource
from msgspec import structs

from contrada.cli.broker_settings import LEVELS, BrokerSettings, settings_of
from contrada.cli.database_argument import without_password
from contrada.cli.extension_option import extension_option
from contrada.cli.lazy_group import EXIT_INTERRUPTED
from contrada.cli.log_output import log, log_line
from contrada.cli.publication_source import arriving
from contrada.cli.tls_options import tls_files, token_from
from contrada.errors import ContradaError
from contrada.matching.kernels import jit
from contrada.model.extensions.extension_loader import load
from contrada.net.broker.broker import Broker, BrokerStatistics
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.users import Users
from contrada.net.wire.address import PORT_DEFAULT
from contrada.net.wire.tls import Tls
from contrada.routing.links.topology import TREES_MAX
from contrada.service.kernel_loader import load_beside
from contrada.service.trace_spans import start_by_environment

if TYPE_CHECKING:
    from contrada.integrations.http import Gateway

_STATUS: Final = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: 0}

_NOT_SETTINGS: Final = {"config", "tracing", "until_input_ends"}
"""Options that no file has."""

_FILES_BESIDE: Final = 64
"""Files that a broker has open beside its connections: its store, links, libraries."""

_LOG: Final = logging.getLogger(__name__)


@click.command()
@click.option("--config", type=click.Path(dir_okay=False), metavar="TOML", help="See below.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    default=PORT_DEFAULT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="0 takes a free one.",
)
@click.option("--name", default="", help="What other brokers call it: a network needs names.")
@click.option(
    "--neighbour", "neighbours", multiple=True, metavar="ADDRESS", help="A broker to be linked to."
)
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
    "--advertisements",
    is_flag=True,
    help="Subscriptions go where something that fits is advertised; nothing else may be published.",
)
@click.option(
    "--sequencer", default="", metavar="NAME", help="Who gives total orders; at all alike."
)
@click.option(
    "--store",
    metavar="PLACE",
    callback=without_password,
    help="Where it keeps what is durable or certified: a file, postgresql://user@host/database, or "
    "memory: for nowhere. contrada.db if nothing is said, contrada-NAME.db with a name; a file is "
    "made with the first promise.",
)
@click.option("--merging", is_flag=True, help="Join what is told to neighbours, where exact.")
@click.option(
    "--http",
    metavar="[HOST:]PORT",
    help="CloudEvents over HTTP there: see docs/http.md; at 127.0.0.1 if no host is given.",
)
@tls_files
@click.option(
    "--tls-require-certificate",
    is_flag=True,
    help="Whoever comes has to show a certificate of the authority.",
)
@click.option(
    "--users",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Only these may come, and do what they may: see contrada user --help.",
)
@click.option(
    "--anyone",
    is_flag=True,
    help="Whoever reaches it may come and do everything, also from elsewhere than this machine.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Says to neighbours who it is, where they have users.",
)
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="Log who comes and goes and what is refused; -vv: subscriptions.",
)
@click.option("--json", "as_json", is_flag=True, help="Log lines of JSON.")
@click.option(
    "--tracing",
    is_flag=True,
    help="Spans of what carries a sampled traceparent; OTEL_… variables say who takes them.",
)
@click.option(
    "--until-input-ends",
    is_flag=True,
    help="End as at SIGTERM when standard input does: with whoever started it.",
)
@extension_option
@click.pass_context
def serve(
    ctx: click.Context, /, config: str | None, tracing: bool, until_input_ends: bool, **_: Any
) -> None:
    """Run a broker, alone or in a network.

    Prints its address as one line when it is ready. SIGTERM ends it with status 0, Ctrl-C with
    130; both hand over what is queued for some seconds and say goodbye to all clients, and what
    was done is printed on standard error. A second Ctrl-C ends it as it is. It logs there, too: its
    own faults always, with -v who comes and goes, and what is refused. What is durable or certified
    outlives a crash, in its store.

    Brokers of a network have names. A link is made by one of its two ends, and made again when
    it breaks; a neighbour that is away is tried until it is there. --general, --trees and
    --advertisements must be the same at all of them: where they are not, -v says so.

    Where others than this machine reach it, --users says who may come (see contrada user --help).
    With --tls-certificate it speaks TLS, with clients and neighbours: contradas://host:port, and
    https://. The address of --http is printed as a second line.

    \b
    contrada serve
    contrada serve --host 0.0.0.0 --users users.toml --tls-certificate broker.pem
    contrada serve --store /var/lib/contrada/events.db --http 8080
    contrada serve --name north --port 7701
    contrada serve --name south --port 7702 --neighbour contrada://127.0.0.1:7701
    contrada serve --extension geometry.operators:Shapes

    --config reads all that from a file; flags beside it win. At SIGHUP the file is read again:
    neighbours come and go, users get and lose what they may, and a renewed certificate is shown;
    clients stay.

    \b
    name = "south"
    port = 7702
    general = true
    neighbours = [
        "contrada://127.0.0.1:7701",
        { to = "contrada://10.0.0.7:7655", role = "child", cost = 3 },
    ]
    extensions = ["geometry.operators:Shapes"]
    log = { level = "info", json = true }
    tls = { certificate = "south.pem", key = "south.key", authority = "ours.pem" }

    A file may describe many brokers (see contrada network --help); --name says which this one is.
    """  # noqa: D301 - click reads the escape
    flags = _flags(ctx)
    path = None if config is None else Path(config)
    settings = settings_of(path, flags)
    log(LEVELS.index(settings.log.level), as_json=settings.log.json)
    for extension in settings.extensions:
        load(extension)
    if tracing:
        start_by_environment()
    _allow_files()
    status, counts = asyncio.run(_serve(settings, path, flags, until_input_ends=until_input_ends))
    end = "the broker has ended"
    as_json = settings.log.json
    told = log_line("info", __name__, end, {"statistics": counts}) if as_json else _summary(counts)
    click.echo(told, err=True)
    raise click.exceptions.Exit(status)


def _allow_files() -> None:
    """Has as many files open, and so connections, as the system allows, and says where that is few.

    What a shell allows is often a thousand, for the sake of programs that cannot do with more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if resource.RLIM_INFINITY != hard < BrokerLimits().connections_max + _FILES_BESIDE:
        said = {"most": hard, "wanted": BrokerLimits().connections_max + _FILES_BESIDE}
        _LOG.warning(
            f"the system allows %(most)d open files (ulimit -Hn): for connections_max = "
            f"{BrokerLimits().connections_max} connections it takes %(wanted)d",
            said,
        )


def _flags(ctx: click.Context) -> dict[str, Any]:
    """What was given as flags, by the keys of a file."""
    flags: dict[str, Any] = {"log": {}, "tls": {}}
    for key, value in ctx.params.items():
        if key in _NOT_SETTINGS or ctx.get_parameter_source(key) is ParameterSource.DEFAULT:
            continue
        if key == "verbose":
            flags["log"]["level"] = LEVELS[min(value, len(LEVELS) - 1)]
        elif key == "as_json":
            flags["log"]["json"] = value
        elif key == "http":
            flags["http"] = {"listen": value}
        elif key.startswith("tls_"):
            flags["tls"][key.removeprefix("tls_")] = value
        else:
            flags[key] = list(value) if isinstance(value, tuple) else value
    return flags


async def _serve(
    settings: BrokerSettings,
    path: Path | None,
    flags: Mapping[str, Any],
    *,
    until_input_ends: bool,
) -> tuple[int, BrokerStatistics]:
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[int] = loop.create_future()

    def end(number: signal.Signals) -> None:
        if not ending.done():
            ending.set_result(_STATUS[number])
        elif number is signal.SIGINT:
            os._exit(EXIT_INTERRUPTED)

    def read_again() -> None:
        nonlocal settings
        try:
            settings = _changed(broker, gateway, settings, settings_of(path, flags))
        except ContradaError as error:
            _LOG.error("%(reason)s; nothing is changed", {"reason": error})
        else:
            _LOG.info("read %(path)s again", {"path": path or settings.users})

    if (tls := settings.tls.tls()) is not None:  # It begins all the same: a clock may be wrong.
        _is_in_date(tls, "whoever comes will refuse it")
    users = _users(settings)
    token = token_from(settings.token_file) if settings.token_file else ""
    broker = Broker(
        settings.host,
        settings.port,
        network=replace(settings.membership(), token=token),
        tls=settings.tls.tls(),
        store=settings.place(),
        users=users,
        anyone=settings.anyone,
    )
    if jit.is_cached():  # It lives long: so what comes first is not matched slowly.
        load_beside()
    async with broker, _http(settings, broker) as gateway:
        for number in _STATUS:
            loop.add_signal_handler(number, end, number)
        if path is not None or users is not None:
            loop.add_signal_handler(signal.SIGHUP, read_again)
        if until_input_ends:
            watching = asyncio.create_task(_input_ended())
            watching.add_done_callback(lambda _: end(signal.SIGTERM))
        click.echo(broker.address)
        if gateway is not None:
            click.echo(gateway.address)
        _tell_manager("READY=1")
        status = await ending
        _tell_manager("STOPPING=1")
    return status, broker.statistics()


@asynccontextmanager
async def _http(settings: BrokerSettings, broker: Broker) -> "AsyncIterator[Gateway | None]":
    """The HTTP port beside a broker, where it has one. Raises ContradaError."""
    if not settings.http.listen:
        yield None
        return
    from contrada.integrations.http import (  # An extra brings what it needs.
        CarriedArrivals,
        Gateway,
        local_services,
    )

    host, port = settings.http.place()
    gateway = Gateway(
        local_services(broker),
        host,
        port,
        tls=settings.tls.tls(),
        origins=settings.http.origins,
        subscriptions=settings.sinks_file(),
        durable=settings.place() is not None,
        private_sinks=settings.http.private_sinks,
        arrivals=CarriedArrivals(broker),
        users=broker,
    )
    async with gateway:
        yield gateway


def _is_in_date(tls: Tls, otherwise: str) -> bool:
    """Whether others take a certificate by the clock; what happens otherwise is told.

    Raises InputError.
    """
    if reason := tls.why_out_of_date():
        _LOG.warning(f"%(reason)s: {otherwise}", {"reason": reason})
    return not reason


def _tell_manager(state: str) -> None:
    """Tells a service manager that waits for it, as systemd does with Type=notify."""
    place = os.environ.get("NOTIFY_SOCKET")
    if not place:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
        try:
            told.sendto(state.encode(), "\0" + place[1:] if place[0] == "@" else place)
        except OSError as error:
            _LOG.warning("%(path)s cannot be told: %(reason)s", {"path": place, "reason": error})


async def _input_ended() -> None:
    async for _ in arriving(sys.stdin.buffer):
        pass  # Nothing is asked for there.


def _changed(
    broker: Broker, gateway: "Gateway | None", old: BrokerSettings, new: BrokerSettings
) -> BrokerSettings:
    """Does what can be done while a broker runs, and says what cannot; what is in force then.

    Raises ContradaError, and has changed nothing.
    """
    shown = structs.replace(old.tls, certificate=new.tls.certificate, key=new.tls.key)
    if bool(old.tls.certificate) != bool(new.tls.certificate):
        shown = old.tls
    users_file = new.users if old.users and new.users else old.users
    taken = structs.replace(old, neighbours=new.neighbours, tls=shown, users=users_file)
    wanted = taken.membership().neighbours
    tls = shown.tls()
    users = _users(taken)
    if tls is not None and _is_in_date(tls, "the one that is shown stays"):
        broker.reload_tls(tls)
        if gateway is not None:
            gateway.renew(tls)
    if users is not None:
        broker.change_users(users)
    broker.neighbours.change(wanted)
    for key in new.__struct_fields__:
        here, there = getattr(taken, key), getattr(new, key)
        if here != there:
            stays, asked = (msgspec.json.encode(each).decode() for each in (here, there))
            _LOG.warning(
                "%(key)s cannot change while a broker runs: it stays %(stays)s, not %(wanted)s",
                {"key": key, "stays": stays, "wanted": asked},
            )
    return taken


def _users(settings: BrokerSettings) -> Users | None:
    return None if settings.users is None else Users.read(Path(settings.users))


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
