"""Principals: names of one's own, and whether one may do all that another may."""

import dataclasses
from itertools import product
from typing import Any

import pytest

from contrada.model import FilterSet
from contrada.service.security.principals import ANYBODY, EVERYTHING, NOTHING, Principal, free, owns


@pytest.mark.parametrize(
    ("names", "name", "is_own"),
    [
        (("desk",), "desk", True),
        (("desk",), "desk/7", True),
        (("desk",), "desk/7/8", True),
        (("desk", "other"), "other/1", True),
        (("*",), "anything", True),
        (("*",), "", True),
        (("desk/7",), "desk/7/8", True),
        ((), "desk", False),
        ((), "", False),
        (("desk",), "", False),
        (("desk",), "desk7", False),
        (("desk",), "Desk", False),
        (("desk",), "desk.7", False),
        (("desk",), "other/desk", False),
        (("desk/7",), "desk", False),
        (("desk",), "*", False),
        (("desk/*",), "desk/7", False),
        (("",), "desk", False),
    ],
)
def test_names_are_own_where_they_are_listed_or_lie_below(
    names: tuple[str, ...], name: str, is_own: bool
) -> None:
    """A user could publish as another one, or not as itself."""
    assert owns(names, name) is is_own


SOME = FilterSet("a = 1")
EVERY = ("*",)
LESSER: dict[str, Any] = {
    "publish": SOME,
    "subscribe": SOME,
    "publishers": ("desk",),
    "durable": ("desk",),
    "may_link": False,
    "may_inspect": False,
    "may_block": False,
}


def test_who_may_do_less_in_one_thing_does_not_cover() -> None:
    """A right that was withdrawn would stay in force."""
    every = free("desk")
    assert every.covers(every)
    assert every.is_free
    for key, value in LESSER.items():
        lesser = dataclasses.replace(every, **{key: value})
        assert every.covers(lesser), key
        assert not lesser.covers(every), key
        assert not lesser.is_free, key
    narrowing = dataclasses.replace(every, narrows=True, expires_us=1)
    assert narrowing.covers(every), "these are no matter of what is in force"


def test_names_below_are_covered_by_those_above() -> None:
    """A client with a new name above its own would have to reconnect."""
    wide = Principal("p", publishers=("desk",), durable=("*",))
    narrow = Principal("p", publishers=("desk/7",), durable=("a", "b/c"))
    assert wide.covers(narrow)
    assert not narrow.covers(wide)
    assert not Principal("p", publishers=("desk",)).covers(Principal("p", publishers=("*",)))


@pytest.mark.parametrize(
    "said", [*product(*(((EVERYTHING, SOME),) * 2), *(((EVERY, ("p",)),) * 2), (True, False))]
)
def test_only_who_may_do_everything_routes_freely(said: tuple[Any, ...]) -> None:
    """Messages and names of a limited neighbour would not be checked."""
    publish, subscribe, publishers, durable, may_link = said
    principal = Principal("p", publish, subscribe, publishers, durable, may_link=may_link)
    everything = (EVERYTHING, EVERYTHING, EVERY, EVERY, True)
    assert principal.is_free_to_route is (said == everything)
    assert principal.publishes_all is (publish is EVERYTHING)


def test_what_is_not_said_one_may_not() -> None:
    """A user with only a name in the file would have rights."""
    nobody = Principal("p")
    assert (nobody.publish, nobody.subscribe) == (NOTHING, NOTHING)
    assert nobody.publishers == nobody.durable == ()
    assert not any((nobody.narrows, nobody.may_link, nobody.may_inspect))
    assert ANYBODY.is_free
