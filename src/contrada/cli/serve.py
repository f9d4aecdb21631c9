"""`contrada serve`: run a broker until SIGTERM or Ctrl-C."""

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec
from click.core import ParameterSource
from msgspec import structs

from contrada.cli import shared_options as options
from contrada.cli.broker_settings import LEVELS, BrokerSettings, settings_of
from contrada.cli.client_command import tls_files, token_from
from contrada.cli.lazy_group import EXIT_INTERRUPTED
from contrada.cli.log_output import log, log_line
from contrada.cli.publication_source import arriving
from contrada.errors import ContradaError
from contrada.model.extensions.extended_type import load
from contrada.net.broker.broker import Broker, BrokerStatistics
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.users import Users
from contrada.net.wire.address import PORT_DEFAULT
from contrada.net.wire.tls import Tls
from contrada.routing.links.topology import TREES_MAX
from contrada.service.trace_spans import start_by_environment

if TYPE_CHECKING:
    from contrada.integrations.http import Gateway

T = TypeVar("T")

_STATUS: Final = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: 0}

_NOT_SETTINGS: Final = {"config", "tracing", "until_input_ends"}
"""Options that a file cannot have."""

_FILES_BESIDE: Final = 64
"""Open files of a broker beside its connections: its store, links, libraries."""

_LOG: Final = logging.getLogger(__name__)


@click.command()
@options.file("--config", "TOML", "Read the settings from this file; see below.")
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@options.typed(
    "--port", options.PORT, None, "Port to listen on; 0 chooses a free one.", PORT_DEFAULT
)
@options.text("--name", None, "Name of this broker in its network.", default="")
@options.repeated("--neighbour neighbours", "ADDRESS", "Broker to link to. Repeatable.")
@options.text("--parent", "ADDRESS", "Broker above this one, in a hierarchy.")
@options.flag("--general", "Allow cycles of links between peers.")
@options.typed(
    "--trees",
    click.IntRange(0, TREES_MAX),
    None,
    "With --general: number of shared trees; 0 uses shortest paths, for few brokers.",
    1,
)
@options.flag(
    "--advertisements",
    "Forward subscriptions only to relevant advertisements; publishing needs an advertisement.",
)
@options.text(
    "--sequencer",
    "NAME",
    "Broker that assigns total order; must be the same on all brokers.",
    default="",
)
@click.option(
    "--store",
    metavar="PLACE",
    callback=options.without_password,
    help="Store of durable subscriptions and certified notifications: a file, "
    "postgresql://user@host/database, or memory:. Default: contrada.db, or "
    "contrada-NAME.db with a name, created at first use.",
)
@options.flag("--merging", "Merge forwarded subscriptions when the result is exact.")
@options.text(
    "--http",
    "[HOST:]PORT",
    "Port for CloudEvents over HTTP; see docs/http.md. Default host: 127.0.0.1.",
)
@tls_files
@options.flag(
    "--tls-require-certificate",
    "Require a certificate of the authority from clients and neighbours.",
)
@options.file(
    "--users", "FILE", "Users that may connect, with their permissions; see contrada user --help."
)
@options.flag("--anyone", "Allow all clients to do everything, also from other machines.")
@options.file("--token-file", "FILE", "Token to present to neighbours that have users.")
@options.verbose("Log connections and refusals; -vv: subscriptions too.")
@options.flag("--json as_json", "Log JSON lines.")
@options.flag(
    "--tracing",
    "Record spans of notifications with a sampled traceparent; OTEL_… variables "
    "configure the exporter.",
)
@options.flag("--until-input-ends", "End as at SIGTERM when standard input closes.")
@options.extension_option
@click.pass_context
def serve(
    ctx: click.Context, /, config: str | None, tracing: bool, until_input_ends: bool, **_: Any
) -> None:
    """Run a broker, alone or in a network.

    Prints its address as one line when it is ready. SIGTERM ends it with status 0, Ctrl-C with 130;
    both deliver the queues for some seconds, close all connections, and print statistics on
    standard error. A second Ctrl-C ends it at once. The log is on standard error too: faults
    always, connections and refusals with -v. Durable subscriptions and certified notifications
    survive a crash in the store.

    Brokers of a network have names. One of its two ends opens a link, and restores it when it
    breaks; an absent neighbour is tried until it answers. --general, --trees and --advertisements
    must be the same on all brokers; with -v a difference is logged.

    A broker that other machines reach needs --users (see contrada user --help). With
    --tls-certificate it uses TLS with clients and neighbours: contradas://host:port, and https://.
    The address of --http is printed as a second line.

    \b
    contrada serve
    contrada serve --host 0.0.0.0 --users users.toml --tls-certificate broker.pem
    contrada serve --store /var/lib/contrada/events.db --http 8080
    contrada serve --name north --port 7701
    contrada serve --name south --port 7702 --neighbour contrada://127.0.0.1:7701
    contrada serve --extension geometry.operators:Shapes

    --config reads these settings from a file; flags override it. At SIGHUP the file is read again:
    neighbours, users and their permissions change, and a renewed certificate is presented; clients
    stay connected.

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
    limits.broker = { connections_max = 1000 }

    The environment overrides limits: CONTRADA_LIMITS_BROKER_CONNECTIONS_MAX=1000. They are in
    docs/limits.md. A file may describe several brokers (see contrada network --help); --name
    selects this one.
    """  # noqa: D301 - click reads the escape
    flags = _flags(ctx)
    path = None if config is None else Path(config)
    settings = settings_of(path, flags)
    log(LEVELS.index(settings.log.level), as_json=settings.log.json)
    for extension in settings.extensions:
        load(extension)
    if tracing:
        start_by_environment()
    _allow_files((settings.all_limits().broker or BrokerLimits()).connections_max)
    status, counts = _run(_serve(settings, path, flags, until_input_ends=until_input_ends))
    click.echo(_summary(counts, as_json=settings.log.json), err=True)
    raise click.exceptions.Exit(status)


def _run(serving: Coroutine[Any, Any, T]) -> T:
    """Runs a broker on the event loop of uvloop where it is installed, else on that of asyncio."""
    make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        make_loop = import_module("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(serving)


def _allow_files(connections: int) -> None:
    """Raises the limit of open files to the hard limit, and logs a warning if that is low.

    The soft limit of a shell is often 1024, for old programs that use select().
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = connections + _FILES_BESIDE
    if resource.RLIM_INFINITY != hard < wanted:
        _LOG.warning(
            f"the system allows %(most)d open files (ulimit -Hn): for connections_max = "
            f"{connections} connections it takes %(wanted)d",
            {"most": hard, "wanted": wanted},
        )


def _flags(ctx: click.Context) -> dict[str, Any]:
    """Returns the given flags, by the keys of a file."""
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
    settings: BrokerSettings, path: Path | None, flags: Mapping[str, Any], *, until_input_ends: bool
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

    if (tls := settings.tls.tls()) is not None:  # Only a warning: a clock may be wrong.
        _is_in_date(tls, "clients and neighbours will refuse it")
    users = _users(settings)
    token = token_from(settings.token_file) if settings.token_file else ""
    limits = settings.all_limits()
    broker = Broker(
        settings.host,
        settings.port,
        network=replace(settings.membership(), token=token),
        tls=settings.tls.tls(),
        store=settings.place(),
        users=users,
        anyone=settings.anyone,
        limits=limits.broker or BrokerLimits(),
        core_limits=limits,
    )
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
        _notify_manager("READY=1")
        status = await ending
        _notify_manager("STOPPING=1")
    return status, broker.statistics()


@asynccontextmanager
async def _http(settings: BrokerSettings, broker: Broker) -> "AsyncIterator[Gateway | None]":
    """The HTTP port of a broker, if it has one. Raises ContradaError."""
    if not settings.http.listen:
        yield None
        return
    from contrada.integrations import http  # Its libraries are an extra.

    host, port = settings.http.place()
    gateway = http.Gateway(
        http.local_services(broker),
        host,
        port,
        tls=settings.tls.tls(),
        origins=settings.http.origins,
        subscriptions=settings.sinks_file(),
        durable=settings.place() is not None,
        private_sinks=settings.http.private_sinks,
        arrivals=http.CarriedArrivals(broker),
        users=broker,
    )
    async with gateway:
        yield gateway


def _is_in_date(tls: Tls, otherwise: str) -> bool:
    """Whether a certificate is valid by the clock; logs a warning otherwise. Raises InputError."""
    if reason := tls.why_out_of_date():
        _LOG.warning(f"%(reason)s: {otherwise}", {"reason": reason})
    return not reason


def _notify_manager(state: str) -> None:
    """Notifies a service manager, such as systemd with Type=notify."""
    place = os.environ.get("NOTIFY_SOCKET")
    if not place:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        try:
            manager.sendto(state.encode(), "\0" + place[1:] if place[0] == "@" else place)
        except OSError as error:
            _LOG.warning(
                "%(path)s cannot be notified: %(reason)s", {"path": place, "reason": error}
            )


async def _input_ended() -> None:
    async for _ in arriving(sys.stdin.buffer):
        pass  # The input has no meaning; only its end has.


def _changed(
    broker: Broker, gateway: "Gateway | None", old: BrokerSettings, new: BrokerSettings
) -> BrokerSettings:
    """Applies the new settings that a running broker can apply, and logs the others.

    Returns the settings in force. Raises ContradaError, and has then changed nothing.
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


def _summary(counts: BrokerStatistics, *, as_json: bool) -> str:
    if as_json:
        return log_line("info", __name__, "the broker has ended", {"statistics": counts})
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
    for name, each in listed.items():
        reasons = ", ".join(f"{count} {reason}" for reason, count in each.items())
        head += f"; {name}: {reasons or 'none'}"
    return head
