"""`contrada serve`: run a broker until SIGTERM or Ctrl-C."""

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec
from click.core import ParameterSource
from msgspec import structs

from contrada.cli import shared_options as options
from contrada.cli.broker_settings import LEVELS, BrokerSettings, settings_of
from contrada.cli.client_command import tls_files, token_of
from contrada.cli.lazy_group import EXIT_INTERRUPTED
from contrada.cli.log_output import log, log_line
from contrada.cli.publication_source import arriving
from contrada.cli.standby import WaitingBroker, notify_manager, running, started, turn
from contrada.errors import ContradaError, InputError
from contrada.model.extensions.extended_type import load
from contrada.net.broker.audit_log import AuditLog
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
    "postgresql://user@host/database, or memory: for none. Default: contrada.db, or "
    "contrada-NAME.db with a name, created at first use.",
)
@options.flag(
    "--standby", "Lead only while no other broker does, of those with --standby on this store."
)
@options.flag("--merging", "Merge forwarded subscriptions when the result is exact.")
@options.text(
    "--http",
    "[HOST:]PORT",
    "Port for CloudEvents over HTTP; see `contrada help http`. Default host: 127.0.0.1.",
)
@tls_files
@options.flag(
    "--tls-require-certificate",
    "Require a certificate of the authority from clients and neighbours.",
)
@options.file(
    "--tls-crl",
    "PEM",
    "Revocation lists of the authority; a revoked certificate is refused. Read again at SIGHUP.",
)
@options.file(
    "--users", "FILE", "Users that may connect, with their permissions; see contrada user --help."
)
@options.text("--jwt-issuer", "URL", "Issuer of tokens from outside (JWT, OpenID Connect).")
@options.text("--jwt-audience", "NAME", "Audience that these tokens have to name.")
@options.text(
    "--jwt-keys", "PLACE", "File or URL of the issuer's keys (JWKS); default: discovered there."
)
@options.file(
    "--audit-log", "FILE", "Append admissions, refusals and changed rights, as JSON lines."
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
    both deliver the queues for some seconds and print statistics on standard error. A second Ctrl-C
    ends it at once. The log is on standard error too. Durable subscriptions and certified
    notifications survive a crash in the store.

    Brokers of a network have names. One of its two ends opens a link, and restores it when it
    breaks. --general, --trees and --advertisements must be the same on all brokers.

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

    The environment overrides limits: CONTRADA_LIMITS_BROKER_CONNECTIONS_MAX=1000. `contrada help
    limits` lists them. A file may have several brokers (`contrada network`); --name selects one.
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
    status = _run(_serve_until_end(settings, path, flags, until_input_ends=until_input_ends))
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
        elif key.startswith(("tls_", "jwt_")):
            table, _, name = key.partition("_")
            flags.setdefault(table, {})[name] = value
        else:
            flags[key] = list(value) if isinstance(value, tuple) else value
    return flags


async def _serve_until_end(
    settings: BrokerSettings, path: Path | None, flags: Mapping[str, Any], *, until_input_ends: bool
) -> int:
    """Serves until a signal, also as a standby again. Returns the status of the process."""
    ending: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    if until_input_ends:
        watching = asyncio.create_task(_input_ended())
        watching.add_done_callback(lambda _: _end(ending, signal.SIGTERM))
    while not ending.done():
        counts = await _serve(settings, path, flags, ending)
        if counts is not None:
            click.echo(_summary(counts, as_json=settings.log.json), err=True)
    return ending.result()


async def _serve(
    settings: BrokerSettings,
    path: Path | None,
    flags: Mapping[str, Any],
    ending: asyncio.Future[int],
) -> BrokerStatistics | None:
    """Serves until a signal, or until another broker leads. Returns the counts, if it has led."""
    loop = asyncio.get_running_loop()
    broker: Broker | None = None
    waiting: WaitingBroker | None = None
    gateway: Gateway | None = None

    def read_again() -> None:
        nonlocal settings
        try:
            found = settings_of(path, flags)
            if broker is not None:
                settings = _changed(broker, gateway, settings, found)
            elif waiting is not None:
                waiting.replace(partial(_broker, found), found.users)
                settings = found
        except ContradaError as error:
            _LOG.error("%(reason)s; nothing is changed", {"reason": error})
        else:
            _LOG.info("read %(path)s again", {"path": path or settings.users or settings.tls.crl})

    def handle_signals() -> None:
        for number in _STATUS:
            loop.add_signal_handler(number, _end, ending, number)
        if path or settings.users or settings.tls.crl or settings.standby:
            loop.add_signal_handler(signal.SIGHUP, read_again)

    if (tls := settings.tls.tls()) is not None:  # Only a warning: a clock may be wrong.
        _is_in_date(tls, "clients and neighbours will refuse it")
    lease = None
    if settings.standby:
        waiting = WaitingBroker(partial(_broker, settings), settings.users)
        handle_signals()
        lease = await turn(settings, waiting, ending)
    if ending.done():
        return None
    broker = _broker(settings) if waiting is None else _with_new_tls(waiting.broker, settings)
    if not await started(broker, lease):
        return None
    async with running(broker, lease) as lost, _http(settings, broker) as opened:
        gateway = opened
        handle_signals()
        # Modules, tables and the HTTP port stay: collections that visit them again and again take
        # 4% of the time of a busy broker.
        gc.freeze()
        click.echo(broker.address)
        if gateway is not None:
            click.echo(gateway.address)
        notify_manager("READY=1")
        await asyncio.wait((ending, lost), return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            notify_manager("STOPPING=1")
    return broker.statistics()


def _end(ending: asyncio.Future[int], number: signal.Signals) -> None:
    """Ends the process at the first signal, and without its goodbyes at a second Ctrl-C."""
    if not ending.done():
        ending.set_result(_STATUS[number])
    elif number is signal.SIGINT:
        os._exit(EXIT_INTERRUPTED)


def _broker(settings: BrokerSettings) -> Broker:
    limits = settings.all_limits()
    token = token_of(settings.token_file) if settings.token_file else ""
    return Broker(
        settings.host,
        settings.port,
        network=replace(settings.membership(), token=token),
        tls=settings.tls.tls(),
        store=settings.place(),
        users=_users(settings),
        jwt=settings.jwt,
        anyone=settings.anyone,
        audit=AuditLog(Path(settings.audit_log)) if settings.audit_log else None,
        limits=limits.broker or BrokerLimits(),
        core_limits=limits,
    )


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
        sinks=http.SinkRules(
            allowed=tuple(settings.http.sinks),
            unasked=tuple(settings.http.unasked_sinks),
            origin=settings.http.webhook_origin,
        ),
        brokers=http.BrokerRules(tuple(settings.http.brokers)),
        arrivals=http.CarriedArrivals(broker),
        users=broker,
    )
    async with gateway:
        yield gateway


def _with_new_tls(broker: Broker, settings: BrokerSettings) -> Broker:
    """Returns a broker that waited; it presents its certificate as it is now."""
    try:
        tls = settings.tls.tls()
        if tls is not None and _is_in_date(tls, "the one that was read before stays"):
            broker.reload_tls(tls)
    except InputError as error:
        _LOG.error("%(reason)s; what was read before stays", {"reason": error})
    return broker


def _is_in_date(tls: Tls, otherwise: str) -> bool:
    """Whether a certificate is valid by the clock; logs a warning otherwise. Raises InputError."""
    if reason := tls.why_out_of_date():
        _LOG.warning(f"%(reason)s: {otherwise}", {"reason": reason})
    return not reason


async def _input_ended() -> None:
    async for _ in arriving(sys.stdin.buffer):
        pass  # The input has no meaning; only its end has.


def _changed(
    broker: Broker, gateway: "Gateway | None", old: BrokerSettings, new: BrokerSettings
) -> BrokerSettings:
    """Applies the new settings that a running broker can apply, and logs the others.

    Returns the settings in force. Raises ContradaError, and has then changed nothing.
    """
    crl = new.tls.crl or old.tls.crl
    shown = structs.replace(old.tls, certificate=new.tls.certificate, key=new.tls.key, crl=crl)
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
