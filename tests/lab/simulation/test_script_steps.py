"""`Script`: scripts can be stored and loaded."""

import pytest

from contrada.errors import InputError
from contrada.lab.simulation.script_maker import make_script
from contrada.lab.simulation.script_steps import Crash, Kind, Script, from_text, to_text
from contrada.lab.simulation.simulated_line import Faults
from contrada.routing.router import Strategy


@pytest.mark.parametrize("strategy", Strategy)
def test_a_written_script_is_read(strategy: Strategy) -> None:
    """A failing script could not be run again."""
    script = make_script(3, Kind("hybrid", strategy, merging=True))
    assert {type(step).__name__ for step in script.steps} >= {
        "Connect",
        "Move",
        "AddFilter",
        "PublishStep",
    }
    assert from_text(to_text(script), "text") == script


@pytest.mark.parametrize(
    ("found", "instead", "said"),
    [
        ('"brokers":2', '"brokers":1001', "expected 1 to BROKERS_MAX"),
        ('"brokers":2', '"brokers":1', "no such server"),
        ('"at_us":5', '"at_us":-5', "not in order of time"),
        ('"step":"crash"', '"step":"smash"', "smash"),
        ('"seed"', '"seat"', "seed"),
    ],
)
def test_an_invalid_script_is_refused_with_its_place(found: str, instead: str, said: str) -> None:
    """A person would not find the fault in a script."""
    kind = Kind("acyclic", Strategy.SUBSCRIPTIONS)
    text = to_text(Script(1, kind, 2, Faults(), (Crash(5, 1, keeps_store=False),)))
    assert from_text(text, "world.json").brokers == 2
    assert found in text
    with pytest.raises(InputError, match=rf"^world\.json: .*{said}"):
        from_text(text.replace(found, instead), "world.json")
