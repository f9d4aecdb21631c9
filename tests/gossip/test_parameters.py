"""Tests of the parameters of a group."""

from typing import Any

import pytest

from contrada.errors import InvalidValueError, LimitError
from contrada.gossip.parameters import (
    FANOUT_MAX,
    HIERARCHY_LEVELS_MAX,
    Parameters,
    check_correlation,
    check_interest,
)


@pytest.mark.parametrize(
    ("wrong", "value"),
    [
        ({"redundancy": 5, "branching": 4}, 5),
        ({"fanout": 0}, 0),
        ({"fanout": 2.5}, 2.5),
        ({"fanout": True}, True),
        ({"levels": 0}, 0),
        ({"branching": 0}, 0),
        ({"period_us": 0}, 0),
        ({"rounds": -1}, -1),
        ({"audience": -1}, -1),
        ({"digest": -1}, -1),
        ({"loss": 1.0}, 1.0),
        ({"loss": -0.1}, -0.1),
        ({"crashes": 1.5}, 1.5),
        ({"target": 1.0}, 1.0),
        ({"approximation": "pittel"}, "pittel"),
        ({"constant": float("inf")}, float("inf")),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], value: object) -> None:
    """A group would be made that reaches nobody, and nobody would know why."""
    with pytest.raises(InvalidValueError) as caught:
        Parameters(**wrong)
    assert caught.value.value == value


@pytest.mark.parametrize("name", ["levels", "fanout"])
def test_too_large_parameters_are_refused(name: str) -> None:
    """A view, or the choice of a round, would have no bound."""
    most = {"levels": HIERARCHY_LEVELS_MAX, "fanout": FANOUT_MAX}[name]
    Parameters(**{name: most}, branching=4)  # type: ignore[arg-type]
    with pytest.raises(LimitError):
        Parameters(**{name: most + 1}, branching=4)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0, -0.5, 1.01, float("nan")])
def test_a_share_of_the_interested_is_a_share(share: float) -> None:
    """Equations would be asked about less than nobody, or more than all."""
    with pytest.raises(InvalidValueError):
        check_interest(share)
    assert check_interest(1) == 1


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_correlation_is_a_share(share: float) -> None:
    """Neighbours would have impossible interests."""
    with pytest.raises(InvalidValueError):
        check_correlation(share)
    assert check_correlation(0) == 0


def test_sizes_of_a_regular_hierarchy() -> None:
    """Equations 6.16 to 6.18 would not hold."""
    group = Parameters(branching=22, levels=3, redundancy=3)
    assert group.participants == 10_648
    assert [group.members(level) for level in (1, 2, 3)] == [22, 66, 66]
    assert group.view_size == 3 * 22 * 2 + 22
    assert Parameters(levels=1, branching=7).view_size == 7
    with pytest.raises(InvalidValueError):
        group.members(4)
