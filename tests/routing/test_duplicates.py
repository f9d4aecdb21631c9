"""`Duplicates`: recent copies are recognised."""

from contrada.routing.duplicates import Duplicates
from contrada.routing.router_limits import RouterLimits


def test_a_notification_is_new_once() -> None:
    """Copies would be delivered; or one client could suppress another's."""
    known = Duplicates()
    assert known.is_new("p", "1")
    assert not known.is_new("p", "1")
    assert known.is_new("p", "2")
    assert known.is_new("q", "1")
    assert known.knows("q", "1")
    assert not known.knows("q", "2")
    assert known.is_new("q", "2"), "who only asks changes nothing"


def test_the_last_ones_are_remembered() -> None:
    """The table would grow without bound, or be emptied at once."""
    known = Duplicates(RouterLimits(remembered_max=10))
    for number in range(1_000):
        assert known.is_new("p", f"{number}")
        for earlier in range(max(0, number - 9), number):
            assert not known.is_new("p", f"{earlier}")
        assert max(len(known._recent), len(known._earlier)) <= 10
