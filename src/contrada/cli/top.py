"""`contrada top`: the rates of brokers, refreshed; at a terminal, keys change the view."""

import asyncio
import os
import re
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.live import Live

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, run
from contrada.cli.lazy_group import EXIT_UNREACHABLE
from contrada.cli.stats import answered
from contrada.cli.table_output import output
from contrada.cli.top_view import CLOSED, TopView
from contrada.errors import ServiceError
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

    At a terminal keys change the view: s sorts by the next column, r reverses the order, / shows
    only rows whose names contain a text (Enter ends it, Esc removes it), b shows the next broker
    alone, p pauses, q quits.

    \b
    contrada top
    contrada top contrada://10.0.0.7:7655 contrada://10.0.0.8:7655 --interval 1
    contrada top --json --count 10 | jq .published_per_s
    """  # noqa: D301 - click reads the escape
    watched = [_Watched(each, approach) for each in addresses or (options.ADDRESS_DEFAULT,)]
    watching = _watch(watched, interval, count, as_json=as_json)
    pictures = run(watching, is_endless=count is None)
    if pictures and all("error" in each for each in pictures):
        raise click.exceptions.Exit(EXIT_UNREACHABLE)


class _Watched:
    """A broker, with its counters at the last refresh."""

    def __init__(self, address: str, approach: Approach) -> None:
        self.address = address
        self._approach = approach
        self._service = self._new_service()  # Raises for a bad address first.
        self._before: tuple[float, Mapping[str, Any]] | None = None

    def _new_service(self) -> TcpService:
        return TcpService(self.address, reconnect=False, options=self._approach)

    async def picture(self) -> dict[str, Any]:
        """Returns the changes since the last refresh, or the reason for no answer."""
        if self._service.connection.state == "closed":
            self._service = self._new_service()
        try:
            if self._service.connection.state == "new":
                await self._service.open()
            counts = await answered(self.address, self._service.broker_statistics())
        except ServiceError as error:
            self._before = None
            await self._service.aclose()
            return {"address": self.address, "error": str(error)}
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
        return {"address": self.address, **rates, **held}

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
    """Shows refreshes until their number is reached, or a person quits; returns the last one."""
    console = output()
    view = TopView([each.address for each in watched])
    pictures: list[dict[str, Any]] = []
    async with AsyncExitStack() as stack:
        for each in watched:
            stack.push_async_callback(each.aclose)
        live = None
        if console.is_terminal and not as_json:
            if sys.stdin.isatty():
                return await _interact(_refreshes(watched, interval_s, count), view, console)
            live = stack.enter_context(Live(console=console, auto_refresh=False))
        async for pictures in _refreshes(watched, interval_s, count):
            if as_json:
                for picture in pictures:
                    click.echo(msgspec.json.encode(picture).decode())
            elif live is not None:
                live.update(view.tables(pictures), refresh=True)
            else:
                console.print(view.tables(pictures))
    return pictures


async def _refreshes(
    watched: Sequence[_Watched], interval_s: float, count: int | None
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yields the pictures of all brokers, so many times or without an end."""
    await _pictures(watched)  # The base of the first rates.
    while count is None or count > 0:
        await asyncio.sleep(interval_s)
        yield await _pictures(watched)
        count = None if count is None else count - 1


async def _interact(
    refreshes: AsyncIterator[list[dict[str, Any]]], view: TopView, console: Console
) -> list[dict[str, Any]]:
    """Shows refreshes on the whole terminal, and changes the view by keys; returns the last."""
    events: asyncio.Queue[str | list[dict[str, Any]]] = asyncio.Queue()

    async def refresh() -> None:
        async for pictures in refreshes:  # Beside the keys: a broker may be silent for a while.
            events.put_nowait(pictures)
        events.put_nowait(CLOSED)

    last: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    async with asyncio.TaskGroup() as group:
        refreshing = group.create_task(refresh())
        with (
            terminal_keys(events.put_nowait),
            Live(view.screen(shown), console=console, screen=True, auto_refresh=False) as live,
        ):
            while not view.is_over:
                event = await events.get()
                if isinstance(event, str):
                    view.press(event)
                else:
                    last = event
                shown = shown if view.is_paused else last
                live.update(view.screen(shown), refresh=True)
        refreshing.cancel()
    return last


async def _pictures(watched: Sequence[_Watched]) -> list[dict[str, Any]]:
    return await asyncio.gather(*(each.picture() for each in watched))


# --- keys -----------------------------------------------------------------------------------------

_KEY_BYTES_MAX: Final = 1024
_KEY_SEQUENCE: Final = re.compile(r"\x1b[\[O][0-?]*[ -/]*[@-~]")
"""The characters of one key, such as an arrow: those that ECMA-48 calls a control sequence."""


@contextmanager
def terminal_keys(on_key: Callable[[str], None]) -> Iterator[None]:
    """Calls a function for each key, without waiting for Enter, in the running event loop.

    The key is its character. Keys that send several, such as arrows, are left out. Ctrl-C remains a
    signal. Standard input has to be a terminal; it is as before afterwards.
    """
    loop = asyncio.get_running_loop()
    number = sys.stdin.fileno()

    def read() -> None:
        try:
            pressed = os.read(number, _KEY_BYTES_MAX).decode(errors="replace")
        except OSError:  # Its other side is gone.
            pressed = ""
        if not pressed:
            loop.remove_reader(number)
            on_key(CLOSED)
        for each in _KEY_SEQUENCE.sub("", pressed):
            on_key(each)

    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    loop.add_reader(number, read)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)
