"""`contrada stats`: the counters of a broker."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import click
from rich.table import Table

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, connect, run
from contrada.cli.table_output import print_records, table
from contrada.errors import ConnectionFailedError
from contrada.model.domains.values import datetime_of
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.tcp_service import TcpService

T = TypeVar("T")


@click.command()
@click.argument("address", default=options.ADDRESS_DEFAULT, metavar="[ADDRESS]")
@options.flag("--json as_json", "As one JSON object.")
@approach_options
def stats(address: str, as_json: bool, approach: Approach) -> None:
    """Print the counters of the broker at ADDRESS: connections, subscriptions, notifications.

    Drops, refusals and undecided relations are counted by reason; the quotas of users that are
    nearest to their limits are shown with their use. A broker with users answers those with the
    permission `inspect`.

    \b
    contrada stats
    contrada stats contrada://10.0.0.7:7655 --json | jq .dropped
    """  # noqa: D301 - click reads the escape
    counts = run(ask_broker(address, approach, TcpService.broker_statistics))
    print_records([counts], _table(address, counts), as_json=as_json)


async def ask_broker(
    address: str, approach: Approach, question: Callable[[TcpService], Awaitable[T]]
) -> T:
    """Connects to a broker for one question. Raises as `answered`."""
    async with connect(address, approach, reconnect=False) as service:
        return await answered(address, question(service))


async def answered(address: str, question: Awaitable[T]) -> T:
    """Returns a broker's answer. Raises ConnectionFailedError after `connect_wait_s`."""
    try:
        async with asyncio.timeout(ClientLimits().connect_wait_s):
            return await question
    except TimeoutError:
        reason = f"the broker did not answer within {ClientLimits().connect_wait_s:g} s"
        raise ConnectionFailedError(address, reason) from None


def _table(address: str, counts: Mapping[str, Any]) -> Table:
    made = table("", address, show_header=True)
    for name, count in counts.items():
        if name in ("began_us", "now_us"):
            made.add_row(name.removesuffix("_us"), f"{datetime_of(count):%Y-%m-%dT%H:%M:%SZ}")
            continue
        if name in ("quota_used", "quota_limits"):
            continue  # Shown together, below.
        label = name.replace("_", " ")
        if not isinstance(count, Mapping):
            made.add_row(label, f"{count:,}")
            continue
        # The counters of delivery and store are of many kinds and have no sum, and times have none.
        is_summed = name not in ("delivery", "store", "queue_oldest_us", "queue_attempts")
        made.add_row(label, f"{sum(count.values()):,}" if is_summed else "")
        for reason, part in count.items():
            made.add_row(f"  {reason}", f"{part:,}")
    limits = counts.get("quota_limits", {})
    if limits:
        made.add_row("quotas", "")
    for name, most in limits.items():
        made.add_row(f"  {name}", f"{counts['quota_used'][name]:,} of {most:,}")
    return made
