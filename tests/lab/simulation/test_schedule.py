"""`Schedule`: virtual time increases."""

import pytest

from contrada.errors import LimitError
from contrada.lab.simulation import schedule as module
from contrada.lab.simulation.schedule import Schedule


def test_things_happen_in_order_of_time_then_of_arrangement() -> None:
    """Two runs of one script would differ."""
    schedule, done = Schedule(), list[tuple[int, str]]()
    for delay_us, name in ((5, "b"), (3, "a"), (5, "c")):
        schedule.after(delay_us, lambda name=name: done.append((schedule.now_us, name)))  # type: ignore[misc]
    schedule.run(4)
    assert (done, schedule.now_us) == ([(3, "a")], 4)
    schedule.run()
    assert (done, schedule.now_us) == ([(3, "a"), (5, "b"), (5, "c")], 5)


def test_an_endless_world_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world with looping messages would never end."""
    monkeypatch.setattr(module, "ACTIONS_MAX", 10)
    schedule = Schedule()

    def again() -> None:
        schedule.after(1, again)

    again()
    with pytest.raises(LimitError, match="ACTIONS_MAX"):
        schedule.run()
