"""Worlds of a group with a lease: they hold, and broken leases are found."""

import pytest

from contrada.errors import InputError
from contrada.lab.simulation.script_maker import make_script, weave
from contrada.lab.simulation.script_steps import Kind, MemberFault, Script, from_text, to_text
from contrada.lab.simulation.simulated_database import SimulatedDatabase
from contrada.lab.simulation.simulated_network import SimulatedNetwork
from contrada.lab.simulation.simulated_standby import SimulatedStandby
from contrada.lab.simulation.world import network_of, run
from contrada.lab.simulation.worlds import shrink
from contrada.routing.router import Strategy

GROUP = Kind("central", Strategy.SUBSCRIPTIONS, reliable=True, standby=True)

SEEDS_MAX = 300
"""Worlds in which a broken lease has to be found."""


def world(seed: int) -> Script:
    """The script of a seed."""
    return weave(make_script(seed, GROUP))


def group_of(script: Script) -> tuple[SimulatedNetwork, SimulatedStandby]:
    """The group of a script before its first step."""
    network = network_of(script)
    assert isinstance(network.delivery, SimulatedStandby)
    return network, network.delivery


def test_members_replace_one_another() -> None:
    """The worlds would hold because a single member leads in each."""
    for seed in range(3):
        script = world(seed)
        assert not run(script).violations
        network, group = group_of(script)
        network.schedule.run(5_000_000)
        assert group.leads == 1
        for leads in (2, 3):
            group.fail("kill")
            network.schedule.run(network.schedule.now_us + 5_000_000)
            assert group.leads == leads


def test_a_paused_leader_is_replaced_and_leads_no_more() -> None:
    """Two members would lead after a pause."""
    network, group = group_of(world(0))
    network.schedule.run(5_000_000)
    group.fail("pause")
    network.schedule.run(10_000_000)
    group.fail("go on")
    network.schedule.run(12_000_000)
    assert group.leads == 2
    assert sum(each is not None for each in group.servers) == 1


def test_worlds_find_a_store_without_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that was replaced could write, and no world would show it."""
    monkeypatch.setattr(SimulatedDatabase, "may_write", lambda *_: True)
    script = next(each for each in map(world, range(SEEDS_MAX)) if run(each).violations)
    short = shrink(script)
    violations = run(short).violations
    assert violations[0].what == "two leaders"
    assert len(short.steps) <= 8, to_text(short)
    assert run(from_text(to_text(short), "text")).violations == violations
    monkeypatch.undo()
    assert not run(short).violations


def test_a_script_names_members_of_the_group() -> None:
    """A script of a file would raise in the middle of its run."""
    text = to_text(world(0).with_steps([MemberFault(1, "kill", 2)]))
    assert from_text(text, "text").steps == (MemberFault(1, "kill", 2),)
    with pytest.raises(InputError, match="no such member"):
        from_text(text.replace('"member":2', '"member":3'), "text")
