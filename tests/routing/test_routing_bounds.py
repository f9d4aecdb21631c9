"""The limits of routing at their ends: as many are allowed, and one more is refused."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from contrada.errors import ContradaError
from contrada.model import Notification, Pattern
from contrada.patterns.runs import PatternLimits
from contrada.routing import aggregation
from contrada.routing.aggregation import AGGREGATES_MAX, Aggregate, AggregateKind, Combination
from contrada.routing.delegation import SubscribePattern
from contrada.routing.links.link_states import COST_MAX, LINKS_MAX, NUMBER_MAX, LinkStates
from contrada.routing.router import Router
from contrada.routing.router_messages import (
    LABEL_CHARS_MAX,
    SAME_NAMES_MAX,
    Adjacency,
    Client,
    LinkState,
    Received,
    RefusedError,
    Role,
    alternative,
)
from tests.routing.test_topology import ring


def check_state(number: int = 1, name: str = "b", *links: Adjacency) -> None:
    LinkStates("a").check(LinkState(name, number, links))


def take_patterns(count: int) -> None:
    """Raises the error of the first refusal of so many patterns."""
    router = Router(pattern_limits=PatternLimits(patterns_max=2))
    for number in range(count):
        message = SubscribePattern(f"{number}", Pattern(f"a = {number} -> b = 1"))
        for effect in router.handle(Received(Client("c"), message), 0):
            if error := getattr(effect, "error", None):
                raise error


BOUNDS: Final[dict[str, tuple[int, Callable[[int], object]]]] = {
    "a server's name": (LABEL_CHARS_MAX, lambda size: check_state(1, "b" * size)),
    "a neighbour's name": (
        LABEL_CHARS_MAX,
        lambda size: check_state(1, "b", Adjacency("c" * size, Role.PEER)),
    ),
    "a source's name": (LABEL_CHARS_MAX, lambda size: ring().check_source("s" * size)),
    "the number of a state": (NUMBER_MAX - 1, check_state),
    "the links of a state": (
        LINKS_MAX,
        lambda count: check_state(
            1, "b", *(Adjacency(f"c{number:05}", Role.PEER) for number in range(count))
        ),
    ),
    "the cost of a link": (
        COST_MAX,
        lambda cost: check_state(1, "b", Adjacency("c", Role.PEER, cost)),
    ),
    "the aggregates of a combination": (
        AGGREGATES_MAX,
        lambda count: Combination(
            tuple(Aggregate(AggregateKind.SUM, f"v{number}") for number in range(count))
        ),
    ),
    "the names of groups": (
        SAME_NAMES_MAX,
        lambda count: alternative({}, [[f"a{number}" for number in range(count)]]),
    ),
    "the patterns": (2, take_patterns),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_a_limit_is_allowed_and_one_more_is_refused(case: str) -> None:
    """What the page of limits allows would be refused, or more be taken than it says."""
    largest, take = BOUNDS[case]
    take(largest)
    with pytest.raises((ContradaError, RefusedError)):
        take(largest + 1)


def test_a_partial_result_of_the_most_bytes_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server would refuse what its neighbour may send, or send what is refused."""
    combination = Combination((Aggregate(AggregateKind.TOP, "v", 3),))

    def made(most: int) -> Any:
        monkeypatch.setattr(aggregation, "PARTIAL_BYTES_MAX", most)
        partial = aggregation.Partial(combination)
        partial.add(Notification({"v": 1, "text": "x" * 100}))
        return partial

    packed = made(1_000).to_bytes()
    assert made(len(packed)).to_bytes() == packed
    assert aggregation.Partial.from_bytes(combination, packed).to_bytes() == packed
    with pytest.raises(ContradaError, match="PARTIAL_BYTES_MAX"):
        made(len(packed) - 1).to_bytes()
    with pytest.raises(ContradaError, match="PARTIAL_BYTES_MAX"):
        aggregation.Partial.from_bytes(combination, packed)
