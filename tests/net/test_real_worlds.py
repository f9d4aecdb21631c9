"""Networks of nine broker processes, killed in the middle, judged by the checkers of worlds."""

import asyncio
from pathlib import Path

import pytest

from contrada.lab.simulation.oracle import Outcome
from contrada.lab.simulation.script_steps import CutLine, Kind
from tests.asynchronous import on_loop
from tests.net import real_world
from tests.net.namespaces import describe_os_error, namespaces
from tests.net.real_plan import Plan, planned
from tests.net.real_world import (
    HIERARCHY,
    MESH,
    NINE,
    PARTED,
    SERVE,
    Loopback,
    Machines,
    outcome_of,
)

SEED = 2
"""Of the worlds that are looked at each time; `make networks` looks at others."""

WORLDS_MAX = 4
"""Worlds in one of which a fault is to be seen. Kills fall where the machine's load has them."""

FEW = 3
"""Brokers of a network that is broken on purpose."""

FIVE = 5
"""Brokers of which each has a namespace of the network of its own."""

FORGETS = """
import sqlite3, sys
from pathlib import Path
path = Path(next(each for each in sys.argv if each.startswith("--store=")).partition("=")[2])
if path.exists():
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM records")
"""
"""A broker restarts without its store."""

CONFIRMS_FIRST = """
from contrada.service.stores.table_store import TableStore
bring, calls = TableStore._bring, []
def late(self):
    calls.append(self)
    if len(calls) % 10 == 0:
        bring(self)
TableStore._bring = late
"""
"""A broker confirms records before they are on disk."""

TELLS_LESS = """
from msgspec.structs import replace
from contrada.model import FilterSet
from contrada.routing import router
from contrada.routing.router_messages import Send, Subscribe
handle = router.Router.handle
def told(self, event, now_us):
    effects = handle(self, event, now_us)
    is_asked = isinstance(getattr(event, "message", None), Subscribe)
    return effects if is_asked else [less(each) for each in effects]
def less(effect):
    if not isinstance(effect, Send) or not isinstance(effect.message, Subscribe):
        return effect
    kept = [each for each in effect.message.filters.filters if "marker" in str(each)]
    message = replace(effect.message, filters=FilterSet(kept))
    return Send(effect.to, message)
router.Router.handle = told
"""
"""A restarted broker does not get all subscriptions."""

DELIVERS_AGAIN = """
from contrada.routing import router
from contrada.routing.router_messages import Deliver, LinkUp
handle, publish = router.Router.handle, router.Router.publish
last = []
def again(self, event, now_us):
    effects = handle(self, event, now_us)
    return [*effects, *last] if isinstance(event, LinkUp) else effects
def kept(self, origin, message, now_us):
    effects = publish(self, origin, message, now_us)
    last[:] = [each for each in effects if isinstance(each, Deliver)] or last
    return effects
router.Router.handle, router.Router.publish = again, kept
"""
"""A broker delivers again when a link is restored."""


def outcome(plan: Plan, folder: Path, machines: Machines, serve: str) -> Outcome:
    """Returns the outcome of a plan. After a fault, all steps are printed."""
    found = asyncio.run(outcome_of(plan, folder, machines, serve))
    if found.violations:
        print(plan.shown())  # noqa: T201 - it is shown where the test fails
    return found


@pytest.mark.parametrize(
    ("still_s", "rest_s", "step", "rests"),
    [(0.0, 60.0, 1, True), (0.0, 60.0, 0, False), (60.0, 0.0, -1, False)],
    ids=["moves", "stands still", "never ends"],
)
@on_loop
async def test_a_network_is_waited_for_as_long_as_it_moves(
    still_s: float, rest_s: float, step: int, rests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow machine would count as a fault; or a standstill as slow, silently."""
    monkeypatch.setattr(real_world, "STILL_S_MAX", still_s)
    monkeypatch.setattr(real_world, "REST_S_MAX", rest_s)
    left = 100

    async def look() -> None:
        nonlocal left
        left -= step

    waiting = real_world.nothing_left(lambda: left, look, "to do")
    if rests:
        await waiting
    else:
        with pytest.raises(TimeoutError, match=r"to do: \d+"):
            await waiting


@pytest.mark.slow
@pytest.mark.parametrize("kind", [MESH, HIERARCHY], ids=lambda each: str(each.shape))
def test_nine_brokers_match_real_subscriptions_while_they_are_killed(
    kind: Kind, tmp_path: Path
) -> None:
    """Guarantees in virtual time would not hold with real processes, disks and sockets."""
    plan = planned(SEED, kind, NINE, 2, each=100)
    found = outcome(plan, tmp_path, Loopback(plan), SERVE)
    assert not found.violations, "\n".join(map(str, found.violations))
    assert found.must > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (FORGETS, {"lost"}),
        (CONFIRMS_FIRST, {"lost", "double", "replay"}),
        (TELLS_LESS, {"lost"}),
        (DELIVERS_AGAIN, {"twice"}),
    ],
    ids=["forgets", "confirms first", "tells less", "delivers again"],
)
def test_a_broker_with_a_fault_is_found_out(
    fault: str, seen: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkers would look at a world in which nothing can be seen."""
    monkeypatch.setattr(real_world, "STILL_S_MAX", 2.0)  # Not all of them settle.
    what: set[str] = set()
    for seed in range(SEED, SEED + WORLDS_MAX):  # In one world nothing may be there to be lost.
        plan = planned(seed, MESH, FEW, 2, each=120)
        folder = tmp_path / str(seed)
        folder.mkdir()
        found = outcome(plan, folder, Loopback(plan), fault + SERVE)
        shown = {each.what for each in found.violations}
        # If a world does not settle, its logs are not read: nothing is lost by that.
        what |= shown - {"lost"} if "no rest" in shown else shown
        if seen & what:
            return
    pytest.fail(f"{WORLDS_MAX} worlds show {what}, and not {seen}")


@pytest.mark.slow
def test_five_machines_keep_it_while_links_are_slow_and_cut(tmp_path: Path) -> None:
    """Guarantees on one machine would not hold with late and lost packets."""
    if (reason := describe_os_error()) is not None:
        pytest.skip(reason)
    plan = planned(SEED, MESH, FIVE, 2, each=80, cuts=True)
    assert any(isinstance(each, CutLine) for burst in plan.bursts for each in burst)
    with namespaces(FIVE, plan.links) as machines:
        found = outcome(plan, tmp_path, machines, PARTED)
    assert not found.violations, "\n".join(map(str, found.violations))
    assert found.must > 0
