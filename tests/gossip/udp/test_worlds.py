"""Whole groups over UDP: a hundred participants with loss in this process; some as processes."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

import pytest

from contrada.gossip.parameters import Parameters
from contrada.gossip.udp import GossipGroup, GroupKey
from tests.asynchronous import on_loop
from tests.gossip.udp.groups import LossyNode, group_of, until_round

WANTED = {"price": 60}
LOSS = 0.1
EVENTS = 20

RELIABILITY_MIN = 0.97
"""The share of pairs of an event and an interested participant that meet, with the loss above."""


def wants(one: LossyNode) -> bool:
    """Five of ten in each of five subsystems of ten: those with the higher digits."""
    high, low = one.statistics().address
    return high < 5 <= low


def is_delegate(one: LossyNode) -> bool:
    """Returns whether an address is among the R smallest of its subsystem."""
    return one.statistics().address[1] < one.group.parameters.redundancy


def has_learned(one: LossyNode) -> bool:
    """Returns whether a participant knows all interests and delegates."""
    low, high = one.participant.membership.view.tables
    subsystem = one.statistics().address[0]
    return (
        [held.filters.matches(WANTED) for held in high.live()] == [True] * 5 + [False] * 5
        and all(
            [each.address[1] for each in held.line.delegates] == [0, 1, 2] for held in high.live()
        )
        and [held.filters.matches(WANTED) for held in low.live()]
        == [subsystem < 5 <= digit for digit in range(10)]
    )


@pytest.mark.slow
@on_loop
async def test_a_hundred_receive_their_matches_despite_losses() -> None:
    """Interested participants would be missed, or others than delegates would be loaded."""
    parameters = Parameters(
        period_us=150_000, fanout=3, redundancy=3, levels=2, branching=10, loss=LOSS, constant=2.0
    )
    addresses = [divmod(number, 10) for number in range(100)]
    async with (
        group_of(addresses, group=GossipGroup(parameters=parameters), loss=LOSS) as nodes,
        AsyncExitStack() as stack,
    ):
        wanting = [each for each in nodes if wants(each)]
        subscribed = [each.subscribe("price > 50") for each in wanting]
        for wanted in subscribed:
            await stack.enter_async_context(wanted)
        await until_round(nodes[0], lambda: all(map(has_learned, nodes)))
        for number in range(EVENTS):
            await wanting[number % len(wanting)].publish({**WANTED, "number": number})
        rounds = [each.participant.statistics().round for each in nodes]
        await until_round(
            nodes[0], lambda: not any(len(each.participant.dissemination.buffers) for each in nodes)
        )
        now = [each.participant.statistics().round for each in nodes]
        assert max(after - before for before, after in zip(rounds, now, strict=True)) < 60
        remove = sum(len(wanted.queue) for wanted in subscribed)
        assert remove / (EVENTS * len(wanting)) >= RELIABILITY_MIN
        for each in nodes:
            seen = each.statistics().participant
            assert seen.known < 99
            if not wants(each) and not (is_delegate(each) and each.statistics().address[0] < 5):
                assert seen.forwarded == 0, each.statistics().address


# --- processes -----------------------------------------------------------------------------------

TIMES = 5

Process = subprocess.Popen[str]
OPTIONS = ("--period", "20", "--levels", "1", "--branching", "64", "--redundancy", "1")


@contextmanager
def started(*arguments: str, key: Path) -> Iterator[Process]:
    """A participant as a process, which ends with the test."""
    command = [sys.executable, "-m", "contrada", "gossip", *arguments, "--key", str(key), *OPTIONS]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def place_of(process: Process) -> str:
    """Where a participant is reached, once it is in the group."""
    assert process.stderr is not None
    told = process.stderr.readline()
    assert told.startswith("in the group at "), told
    return told.split()[4].rstrip(",")


@contextmanager
def participant(*arguments: str, key: Path) -> Iterator[tuple[Process, str]]:
    """One that is in the group, and its place."""
    with started(*arguments, key=key) as process:
        yield process, place_of(process)


def published(place: str, key: Path, value: int) -> None:
    """Has a newcomer publish, and leave; several times, since one event may miss somebody."""
    lines = "".join(json.dumps({"price": value, "number": each}) + "\n" for each in range(TIMES))
    with participant("join", place, "--publish", key=key) as (process, _):
        out, told = process.communicate(lines, timeout=60)
    assert (process.returncode, out, told) == (0, "", f"published {TIMES}\n")


def printed(process: Process, value: int) -> bool:
    """Whether a process prints this price, after others."""
    assert process.stdout is not None
    return any(json.loads(line)["price"] == value for line in process.stdout)


@pytest.mark.slow
def test_processes_go_on_where_one_is_killed(tmp_path: Path) -> None:
    """A group of real processes would fall apart with one of them; Ctrl-C would not leave it."""
    key = tmp_path / "key"
    GroupKey.new().write(key)
    with ExitStack() as stack:
        first, place = stack.enter_context(
            participant("start", "--at", "127.0.0.1:0", "--subscribe", "price < 100", key=key)
        )
        join = ("join", place, "--subscribe", "price < 100")
        others = [stack.enter_context(started(*join, key=key)) for _ in range(4)]
        places = [place_of(each) for each in others]
        published(place, key, 1)
        assert all(printed(each, 1) for each in (first, *others))
        others[0].kill()
        first.send_signal(signal.SIGINT)
        out, told = first.communicate(timeout=60)
        assert (first.returncode, told) == (130, "")
        assert all(json.loads(line)["price"] == 1 for line in out.splitlines())
        published(places[2], key, 2)
        assert all(printed(each, 2) for each in others[1:])
