"""`contrada top`: the rates of brokers, refreshed."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import click
import msgspec
from rich.console import Group
from rich.live import Live

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, run
from contrada.cli.lazy_group import EXIT_UNREACHABLE
from contrada.cli.stats import answered
from contrada.cli.table_output import output, table
from contrada.errors import ServiceError
from contrada.model.domains.values import datetime_of
from contrada.net.client.tcp_service import TcpService

_RATED: Final = ("published", "matched", "dropped", "link_sent", "subscription_dropped")
"""Counters of a broker that are shown as a rate per second."""

_HELD: Final = (
    "connections",
    "links",
    "subscriptions",
    "held_bytes",
    "link_waiting",
    "subscription_waiting",
    "queue_unread",
    "queue_handed",
    "queue_readers",
    "queue_oldest_us",
    "queue_dead",
)
"""Figures that are shown unchanged."""

_OF_THE_FIRST: Final = ("link_sent", "subscription_dropped")
"""Tables of which a broker sends only the first entries."""

_HEADINGS: Final = (
    "published/s",
    "matched/s",
    "dropped/s",
    "connections",
    "links",
    "subscriptions",
    "held bytes",
)


@click.command()
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@options.typed(
    "--interval", click.FloatRange(0.1, 3600), "S", "Seconds between two refreshes.", 2.0
)
@click.option("--count", type=options.COUNT, metavar="N", help="End after N refreshes.")
@options.flag("--json as_json", "One JSON object per broker and refresh.")
@approach_options
def top(
    addresses: tuple[str, ...],
    interval: float,
    count: int | None,
    as_json: bool,
    approach: Approach,
) -> None:
    """Show the rates and the present load of the brokers at these addresses.

    Below the brokers are their links, and the subscriptions with the longest queues, as
    client/identity. A broker that does not answer is tried again at each refresh. The status is 1
    if none answers at the end. A broker with users answers those with the permission `inspect`.

    \b
    contrada top
    contrada top contrada://10.0.0.7:7655 contrada://10.0.0.8:7655 --interval 1
    contrada top --json --count 10 | jq .published_per_s
    """  # noqa: D301 - click reads the escape
    watched = [_Watched(each, approach) for each in addresses or (options.ADDRESS_DEFAULT,)]
    watching = _watch(watched, interval, count, as_json=as_json)
    pictures = run(watching, is_endless=count is None)
    if all("error" in each for each in pictures):
        raise click.exceptions.Exit(EXIT_UNREACHABLE)


class _Watched:
    """A broker, with its counters at the last refresh."""

    def __init__(self, address: str, approach: Approach) -> None:
        self._address = address
        self._approach = approach
        self._service = self._new_service()  # Raises for a bad address first.
        self._before: tuple[float, Mapping[str, Any]] | None = None

    def _new_service(self) -> TcpService:
        return TcpService(self._address, reconnect=False, options=self._approach)

    async def picture(self) -> dict[str, Any]:
        """Returns the changes since the last refresh, or the reason for no answer."""
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
        await self._service.aclose()


def _rate(now: Any, before: Any, seconds: float, is_partial: bool = False) -> Any:
    """Returns the change per second, of each key in a mapping; a restarted counter begins at 0.

    If `before` is partial, a missing counter may be old: its change is unknown, so 0.
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
    """Shows refreshes until their number is reached; returns the last one."""
    console = output()
    async with AsyncExitStack() as stack:
        for each in watched:
            stack.push_async_callback(each.aclose)
        live = None
        if console.is_terminal and not as_json:
            live = stack.enter_context(Live(console=console, auto_refresh=False))
        pictures = await _pictures(watched)  # The base of the first rates.
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
    """Returns the tables: brokers, links, and the subscriptions with the longest queues."""
    brokers = table("broker", right=_HEADINGS)
    links = table("link", right=("sent/s", "waiting"))
    subscriptions = table("subscription", right=("waiting", "dropped/s"))
    queues = table("queue", right=("unread", "handed", "readers", "dead", "oldest"))
    away = table("no picture of", "why")
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
        for name, unread in (each["queue_unread"] or {}).items():
            row = (each[f"queue_{of}"][name] for of in ("handed", "readers", "dead"))
            oldest_us = each["queue_oldest_us"][name]
            oldest = f"{datetime_of(oldest_us):%Y-%m-%dT%H:%M:%SZ}" if oldest_us else ""
            numbers = (f"{count:,}" for count in (unread, *row))
            queues.add_row(f"{address} {name}", *numbers, oldest)
    shown = (brokers, away, links, subscriptions, queues)
    return Group(*(each for each in shown if each.row_count))
