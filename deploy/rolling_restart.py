"""`roll`: restarts the brokers of a network one after the other, without loss of guaranteed
delivery.

    python deploy/rolling_restart.py network.toml 'ssh {host} systemctl restart contrada'

Each broker is restarted by the command, in which {name}, {host} and {port} are its own. The next
one is restarted only when this one runs anew and has as many links as before. So at most one is
absent: certified notifications wait on disks, and are delivered on another path or when their owner
is back. A stopping broker hands over its best-effort notifications, and may lose some; brokers
count that, and this program prints the increase of the counters.

A broker that listens at all addresses (0.0.0.0) is reached at the host of --at NAME=HOST. The
program connects as a client with the token of CONTRADA_TOKEN, if that is set: of a user with the
permission inspect.

It ends with status 1, and touches no further broker, after a failed restart.
"""

import argparse
import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from contrada.cli.broker_settings import EVERYWHERE, BrokerSettings, settings_of_network
from contrada.cli.client_command import token_from
from contrada.cli.stats import answered
from contrada.errors import ContradaError
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.endpoint import ConnectOptions

BACK_WAIT_S = 60.0
"""Seconds for a broker to restart and restore its links. Beyond it: the program ends."""

LOOK_S = 0.1

Restart = Callable[[str, BrokerSettings], Awaitable[None]]
"""Restarts a broker; it may return before that is done."""


async def roll(brokers: Mapping[str, BrokerSettings], restart: Restart) -> dict[str, int]:
    """Restarts all brokers in their order; returns the best-effort losses, by reason.

    Raises ContradaError if one does not answer, or is not back in time.
    """
    lost: dict[str, int] = {}
    for name, settings in brokers.items():
        before = {each: await asked(of) for each, of in brokers.items()}
        await restart(name, settings)
        await come_back(name, settings, before[name])
        for each, of in brokers.items():
            if each != name:  # Its own counts begin anew.
                rise(lost, before[each]["dropped"], (await asked(of))["dropped"])
        print(f"{name} is back, with {before[name]['links']} links", flush=True)
    return lost


def rise(lost: dict[str, int], before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Adds the increase of counters."""
    for reason, count in after.items():
        if count > before.get(reason, 0):
            lost[reason] = lost.get(reason, 0) + count - before.get(reason, 0)


async def asked(settings: BrokerSettings) -> dict[str, Any]:
    """Returns the statistics of a broker. Raises ContradaError without an answer."""
    tls = settings.tls.tls()
    approach = ConnectOptions(None if tls is None else tls.client_context(), token_from(None))
    address = str(settings.address)
    async with TcpService(address, reconnect=False, options=approach) as service:
        return dict(await answered(address, service.broker_statistics()))


async def come_back(name: str, settings: BrokerSettings, before: Mapping[str, Any]) -> None:
    """Returns when a restarted broker answers with as many links as before.

    Raises ContradaError after BACK_WAIT_S.
    """
    missing = "it does not answer"
    try:
        async with asyncio.timeout(BACK_WAIT_S):
            while missing := await what_is_missing(settings, before):
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        reason = f"{name} did not come back in {BACK_WAIT_S:g} s: {missing}"
        raise ContradaError(reason) from None


async def what_is_missing(settings: BrokerSettings, before: Mapping[str, Any]) -> str:
    """Returns the reason why a broker is not back; empty if it is."""
    try:
        counts = await asked(settings)
    except ContradaError as error:
        return str(error)
    if counts.get("began_us") == before.get("began_us"):  # An older broker tells none.
        return "the command did not restart it"
    if counts["links"] < before["links"]:
        return f"it has {counts['links']} links, and had {before['links']}"
    return ""


def by_command(command: str) -> Restart:
    """Restarts by a command with {name}, {host} and {port}. Raises ContradaError."""

    def words_for(name: str, host: str, port: int) -> list[str]:
        try:
            return [each.format(name=name, host=host, port=port) for each in shlex.split(command)]
        except (ValueError, LookupError, AttributeError) as error:
            expected = "a command with {name}, {host} and {port}"
            raise ContradaError(f"{command!r}: {error}; expected {expected}") from None

    words_for("", "", 0)  # What is wrong with it is found before anything is restarted.

    async def restart(name: str, settings: BrokerSettings) -> None:
        words = words_for(name, settings.host, settings.port)
        try:
            process = await asyncio.create_subprocess_exec(*words)
        except OSError as error:
            raise ContradaError(f"{shlex.join(words)}: {error.strerror or error}") from None
        if status := await process.wait():
            raise ContradaError(f"{shlex.join(words)} ended with status {status}")

    return restart


def reachable(
    brokers: Mapping[str, BrokerSettings], hosts: Mapping[str, str]
) -> dict[str, BrokerSettings]:
    """Returns the brokers with their reachable hosts. Raises ContradaError."""
    if strange := sorted({*hosts} - {*brokers}):
        raise ContradaError(f"--at {strange[0]}: there are the brokers {', '.join(brokers)}")
    found = {name: replace(of, host=hosts.get(name, of.host)) for name, of in brokers.items()}
    for name, of in found.items():
        if of.host in EVERYWHERE:
            reason = f"it listens at {of.host!r}, which is this machine and no other"
            raise ContradaError(f"{name}: {reason}; say --at {name}=HOST, by which it is reached")
    return found


def named(text: str) -> tuple[str, str]:
    """Parses NAME=HOST. Raises ArgumentTypeError."""
    name, separator, host = text.partition("=")
    if not (name and separator and host):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=HOST")
    return name, host


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("network", type=Path, help="the network file")
    parser.add_argument(
        "command", help="command that restarts one broker, with its {name}, {host}, {port}"
    )
    parser.add_argument(
        "--at",
        action="append",
        default=[],
        type=named,
        metavar="NAME=HOST",
        help="host of a broker that listens at all addresses; repeatable",
    )
    given = parser.parse_args()
    try:
        brokers = reachable(settings_of_network(given.network), dict(given.at))
        lost = asyncio.run(roll(brokers, by_command(given.command)))
    except ContradaError as error:
        print(f"rolling restart: {error}", file=sys.stderr)
        return 1
    print("lost at best effort:", ", ".join(f"{n} {why}" for why, n in lost.items()) or "nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
