"""Restarts the brokers of a network one after the other, so that nothing promised is lost.

    python deploy/rolling_restart.py network.toml 'ssh {host} systemctl restart contrada'

Each broker is restarted by the command, in which {name}, {host} and {port} stand for its own. The
next one is restarted only when this one began anew, and answers with as many links as before. So
at any time at most one is away: what is certified waits on disks and comes, by another way or when
its home is back. What is best effort and on its way through the broker that stops is handed over
while it stops, and may be lost; brokers count that, and this tells by how much the counts rose.

A broker that listens at all addresses (0.0.0.0) is reached by the host of --at NAME=HOST. It comes
as a client with the token of CONTRADA_TOKEN, where that is set: of a user who may inspect.

It ends with status 1, and touches no further broker, where one does not come back.
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
from contrada.cli.stats import answered
from contrada.cli.tls_options import token_from
from contrada.errors import ContradaError
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.endpoint import ConnectOptions

BACK_WAIT_S = 60.0
"""How long a broker may take to come back, with its links. Beyond it: the restart ends there."""

LOOK_S = 0.1

Restart = Callable[[str, BrokerSettings], Awaitable[None]]
"""Has a broker restarted; it may return before that is done."""


async def roll(brokers: Mapping[str, BrokerSettings], restart: Restart) -> dict[str, int]:
    """Restarts all, one at a time, in their order; what was lost at best effort, by reason.

    Raises ContradaError where one does not answer, or does not come back.
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
    """Adds by how much counts rose."""
    for reason, count in after.items():
        if count > before.get(reason, 0):
            lost[reason] = lost.get(reason, 0) + count - before.get(reason, 0)


async def asked(settings: BrokerSettings) -> dict[str, Any]:
    """The statistics of a broker. Raises ContradaError where it does not answer."""
    tls = settings.tls.tls()
    approach = ConnectOptions(None if tls is None else tls.client_context(), token_from(None))
    address = str(settings.address)
    async with TcpService(address, reconnect=False, options=approach) as service:
        return dict(await answered(address, service.broker_statistics()))


async def come_back(name: str, settings: BrokerSettings, before: Mapping[str, Any]) -> None:
    """Returns when a broker that began anew answers, with as many links as before.

    Raises ContradaError where that has not come about in BACK_WAIT_S.
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
    """Why a broker is not back; empty where it is."""
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
    """The brokers at the hosts by which others reach them. Raises ContradaError."""
    if strange := sorted({*hosts} - {*brokers}):
        raise ContradaError(f"--at {strange[0]}: there are the brokers {', '.join(brokers)}")
    found = {name: replace(of, host=hosts.get(name, of.host)) for name, of in brokers.items()}
    for name, of in found.items():
        if of.host in EVERYWHERE:
            reason = f"it listens at {of.host!r}, which is this machine and no other"
            raise ContradaError(f"{name}: {reason}; say --at {name}=HOST, by which it is reached")
    return found


def named(text: str) -> tuple[str, str]:
    """A broker and its host. Raises ArgumentTypeError."""
    name, separator, host = text.partition("=")
    if not (name and separator and host):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=HOST")
    return name, host


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("network", type=Path, help="the file that describes the brokers")
    parser.add_argument("command", help="what restarts one: {name}, {host}, {port} are its own")
    parser.add_argument(
        "--at",
        action="append",
        default=[],
        type=named,
        metavar="NAME=HOST",
        help="by which host a broker is reached that listens at all; may be repeated",
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
