"""`contrada top`: how fast brokers work, as it changes."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import click
import msgspec
from rich.console import Group
from rich.live import Live
from rich.table import Table

from contrada.cli.async_command import run
from contrada.cli.lazy_group import EXIT_UNREACHABLE
from contrada.cli.pub import ADDRESS_DEFAULT
from contrada.cli.stats import answered
from contrada.cli.table_output import output
from contrada.cli.tls_options import approach_options
from contrada.errors import ServiceError
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.endpoint import ConnectOptions

_RATED: Final = ("published", "matched", "dropped", "link_sent", "subscription_dropped")
"""Counts of a broker of which the change in a second is shown."""

_HELD: Final = (
    "connections",
    "links",
    "subscriptions",
    "held_bytes",
    "link_waiting",
    "subscription_waiting",
)
"""Figures that are shown as they are."""

_OF_THE_FIRST: Final = ("link_sent", "subscription_dropped")
"""Of these a broker tells only the first, each time."""


@click.command()
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    metavar="S",
    help="Seconds between two pictures.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after N pictures.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object per broker and picture.")
@approach_options
def top(
    addresses: tuple[str, ...],
    interval: float,
    count: int | None,
    as_json: bool,
    approach: ConnectOptions,
) -> None:
    """Show how fast the brokers at these addresses work: what they do in a second, and hold now.

    Below the brokers stand their links, and the subscriptions, as client/identity, for which most
    waits: those that do not keep up. A broker that does not answer is asked again for each picture.
    The status is 1 where none answers at last. Where a broker has users, it tells those with
    `inspect`.

    \b
    contrada top
    contrada top contrada://10.0.0.7:7655 contrada://10.0.0.8:7655 --interval 1
    contrada top --json --count 10 | jq .published_per_s
    """  # noqa: D301 - click reads the escape
    watched = [_Watched(each, approach) for each in addresses or (ADDRESS_DEFAULT,)]
    pictures = run(_watch(watched, interval, count, as_json=as_json))
    if all("error" in each for each in pictures):
        raise click.exceptions.Exit(EXIT_UNREACHABLE)


class _Watched:
    """A broker, and what it had counted when it was last asked."""

    def __init__(self, address: str, approach: ConnectOptions) -> None:
        self._address = address
        self._approach = approach
        self._service = self._new_service()  # A bad address is found out before.
        self._before: tuple[float, Mapping[str, Any]] | None = None

    def _new_service(self) -> TcpService:
        return TcpService(self._address, reconnect=False, options=self._approach)

    async def picture(self) -> dict[str, Any]:
        """What has changed since it was asked before; or why it does not answer."""
        if self._service.connection.state == "closed":
            self._service = self._new_service()
        try:
            if self._service.connection.state == "new":
                await self._service.open()
            counts = await answered(self._address, self._service.broker_statistics())
        except ServiceError as error:
            self._before = None
            await self._service.aclose()
            return {"address": self._address, "error": str(error)}
        now_s = time.monotonic()
        before_s, before = self._before or (now_s, counts)
        self._before = now_s, counts
        rates = {
            f"{name}_per_s": _rate(
                counts.get(name, 0), before.get(name, 0), now_s - before_s, name in _OF_THE_FIRST
            )
            for name in _RATED
        }
        held = {name: counts.get(name, 0) for name in _HELD}
        return {"address": self._address, **rates, **held}

    async def aclose(self) -> None:
        """Says goodbye to the broker."""
        await self._service.aclose()


def _rate(now: Any, before: Any, seconds: float, is_partial: bool = False) -> Any:
    """The change in a second, of each where there are several; what began anew counts from 0.

    Where `before` is partial, a count missing in it may be old: its change is unknown, so 0.
    """
    if isinstance(now, Mapping):
        held = before if isinstance(before, Mapping) else {}
        return {
            name: _rate(each, held.get(name, each if is_partial else 0), seconds)
            for name, each in now.items()
        }
    change = now - before if now >= before else now
    return round(change / seconds, 1) if seconds else 0.0


async def _watch(
    watched: Sequence[_Watched], interval_s: float, count: int | None, *, as_json: bool
) -> list[dict[str, Any]]:
    """Shows pictures until there were so many; the last one."""
    console = output()
    async with AsyncExitStack() as stack:
        for each in watched:
            stack.push_async_callback(each.aclose)
        live = None
        if console.is_terminal and not as_json:
            live = stack.enter_context(Live(console=console, auto_refresh=False))
        pictures = await _pictures(watched)  # Those that the first changes are counted from.
        while count is None or count > 0:
            await asyncio.sleep(interval_s)
            pictures = await _pictures(watched)
            if as_json:
                for picture in pictures:
                    click.echo(msgspec.json.encode(picture).decode())
            elif live is not None:
                live.update(_shown(pictures), refresh=True)
            else:
                console.print(_shown(pictures))
            count = None if count is None else count - 1
    return pictures


async def _pictures(watched: Sequence[_Watched]) -> list[dict[str, Any]]:
    return await asyncio.gather(*(each.picture() for each in watched))


def _shown(pictures: Sequence[Mapping[str, Any]]) -> Group:
    """The brokers, then their links, then the subscriptions for which most waits."""
    brokers = _table("broker", *_HEADINGS)
    links = _table("link", "sent/s", "waiting")
    subscriptions = _table("subscription", "waiting", "dropped/s")
    away = Table("no picture of", "why")
    for each in pictures:
        address = each["address"]
        if "error" in each:
            away.add_row(address, each["error"])
            continue
        dropped = each["dropped_per_s"]
        reasons = ", ".join(f"{rate:,.1f} {reason}" for reason, rate in dropped.items() if rate)
        rates = [f"{each[name]:,.1f}" for name in ("published_per_s", "matched_per_s")]
        held = [f"{each[name]:,}" for name in _HELD[:4]]
        brokers.add_row(address, *rates, reasons or "0.0", *held)
        for name, waiting in each["link_waiting"].items():
            sent = each["link_sent_per_s"][name]
            links.add_row(f"{address} to {name}", f"{sent:,.1f}", f"{waiting:,}")
        for name, waiting in each["subscription_waiting"].items():
            lost = each["subscription_dropped_per_s"][name]
            subscriptions.add_row(f"{address} {name}", f"{waiting:,}", f"{lost:,.1f}")
    return Group(*(each for each in (brokers, away, links, subscriptions) if each.row_count))


_HEADINGS: Final = (
    "published/s",
    "matched/s",
    "dropped/s",
    "connections",
    "links",
    "subscriptions",
    "held bytes",
)


def _table(first: str, *others: str) -> Table:
    table = Table(first)
    for each in others:
        table.add_column(each, justify="right")
    return table
