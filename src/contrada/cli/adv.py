"""`contrada adv`: advertise from the command line, and list advertisements."""

import sys
from contextlib import AsyncExitStack, suppress

import click
import msgspec

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, connect, lost, run
from contrada.model import Filter
from contrada.routing.router_messages import Offer
from contrada.service.loop_guards import checked_timeout, next_of


@click.command()
@click.argument("advertisements", metavar="[ADVERTISEMENT]...", nargs=-1)
@options.broker_option
@options.flag("--follow", "List advertisements and their changes.")
@options.typed(
    "--timeout", options.SECONDS, "S", "With --follow: end after S seconds without a change."
)
@options.flag("--json as_json", "One JSON object per line.")
@approach_options
@options.extension_option
def adv(
    advertisements: tuple[str, ...],
    to: str,
    follow: bool,
    timeout: float | None,
    as_json: bool,
    approach: Approach,
) -> None:
    """Advertise notifications until Ctrl-C, or list advertisements with --follow.

    A new advertisement is a line that begins with `+`, an ended one with `-`. An advertisement that
    allows any further attributes, such as that of a class of obvents, ends with `, …`.

    \b
    contrada adv "origin any and gust >= 0"
    contrada adv --follow
    contrada adv --follow --json --timeout 5 | jq .offer
    """  # noqa: D301 - click reads the escape
    if not advertisements and not follow:
        raise click.UsageError("give a filter to advertise, or --follow")
    if timeout is not None and not follow:
        raise click.UsageError("--timeout needs --follow")
    service, timeout = connect(to, approach), checked_timeout(timeout)

    async def advertise() -> None:
        # Raises for wrong filters before connecting.
        offerings = [service.advertise(each) for each in advertisements]
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(service)
            for each in offerings:
                await stack.enter_async_context(each)
            if follow:
                found = await stack.enter_async_context(service.advertisements())
                with suppress(TimeoutError):
                    while True:
                        change = await next_of(found, timeout)
                        show(change.offer, change.is_on_offer, as_json=as_json)
            else:
                for each in offerings:
                    show(each.offer, True, as_json=as_json)
                await lost(service)

    run(advertise(), is_endless=timeout is None)


def show(offer: Offer, is_on_offer: bool, *, as_json: bool) -> None:
    """Prints a new or an ended advertisement."""
    is_open = isinstance(offer, Filter)
    if as_json:
        shown = {"offer": str(offer), "is_open": is_open, "is_on_offer": is_on_offer}
        line = msgspec.json.encode(shown).decode()
    else:
        line = f"{'+' if is_on_offer else '-'} {offer}{', …' if is_open else ''}"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
