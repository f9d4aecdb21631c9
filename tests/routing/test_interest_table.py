"""`InterestTable`: registrations are accepted as a whole or not at all, and withdrawn exactly."""

import pytest

from contrada.errors import LimitError
from contrada.matching.index import Index
from contrada.model import Advertisement, Filter, FilterSet
from contrada.model.algebra.filter import Selects
from contrada.model.rule import Rule
from contrada.routing.router import Router
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    Client,
    Describe,
    LinkUp,
    Neighbour,
    NextHop,
    Reason,
    Refused,
    RefusedError,
    Role,
    Send,
    Subscribe,
    Undescribe,
    Unsubscribe,
)
from contrada.routing.tables import covering_index, interest_table
from contrada.routing.tables.covering_index import FilterCoveringIndex, OfferCoveringIndex
from contrada.routing.tables.interest_table import InterestTable
from tests.routing.test_interest_forwarder import (
    ANN,
    BOB,
    IN_USE,
    NARROW,
    WIDE,
    L,
    M,
    P,
    effects_of,
    router_with,
)


def test_a_full_table_refuses() -> None:
    """A table would grow without bound, or a refused registration remain in part."""
    limits = RouterLimits(registrations_max=1, neighbours_max=1, filters_per_subscription_max=1)
    router = router_with((L, Role.PEER), limits=limits)
    assert isinstance(effects_of(router, ANN, Subscribe("1", IN_USE))[0], Refused)
    assert isinstance(effects_of(router, ANN, Subscribe("1", WIDE))[0], Send)
    assert isinstance(effects_of(router, ANN, Subscribe("2", NARROW))[0], Refused)
    assert isinstance(router.handle(LinkUp(M, Role.PEER), 0)[0], Refused)
    assert router.statistics().refused == {Reason.FULL: 3}
    router.validate()


def test_filters_of_all_subscriptions_are_bounded() -> None:
    """Few subscriptions of many filters would fill the memory."""
    router = router_with((L, Role.PEER), limits=RouterLimits(filters_max=3))
    effects_of(router, ANN, Subscribe("1", IN_USE))
    (refused,) = effects_of(router, BOB, Subscribe("1", IN_USE))
    assert isinstance(refused, Refused)
    assert "filters_max" in str(refused.error)
    assert not any(
        isinstance(each, Refused) for each in effects_of(router, BOB, Subscribe("1", WIDE))
    )
    assert router.handle(LinkUp(P, Role.PARENT), 0) == [
        Refused(LinkUp(P, Role.PARENT), Reason.FULL)
    ]
    effects_of(router, ANN, Unsubscribe("1"))
    assert not any(
        isinstance(each, Refused) for each in effects_of(router, BOB, Subscribe("2", IN_USE))
    )


class NarrowIndex(Index[int]):
    """An index that refuses filters on `z`."""

    def add(self, key: int, subscription: Selects | Rule) -> None:
        if isinstance(subscription, Filter) and "z" in subscription.sides:
            raise LimitError("ATTRS_MAX", 0)
        super().add(key, subscription)


def test_a_full_index_leaves_nothing_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused subscription would be served in part, or remain."""
    for module in (covering_index, interest_table):
        monkeypatch.setattr(module, "Index", NarrowIndex)
    router = Router()
    router.handle(LinkUp(L, Role.PEER), 0)
    effects_of(router, BOB, Subscribe("1", WIDE))
    members = FilterSet([WIDE, NARROW, Filter("z = 1")])
    (refused,) = effects_of(router, ANN, Subscribe("1", members))
    assert isinstance(refused, Refused)
    assert refused.reason == Reason.FULL
    assert router.statistics().filters.nodes == 1
    assert isinstance(effects_of(router, BOB, Unsubscribe("1"))[0], Send)


@pytest.mark.parametrize("linked", [True, False])
def test_descriptions_remain_where_others_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    """A refused change would take the descriptions of a source, here but not at neighbours."""
    for module in (covering_index, interest_table):
        monkeypatch.setattr(module, "Index", NarrowIndex)
    router = Router()
    if linked:
        router.handle(LinkUp(L, Role.PEER), 0)
    effects_of(router, ANN, Describe("1", (WIDE, NARROW)))
    (refused,) = effects_of(router, ANN, Describe("1", (NARROW, Filter("z = 1"))))
    assert isinstance(refused, Refused)
    assert set(router.forwarding.descriptions.products_of(ANN)) == {WIDE, NARROW}
    router.validate()
    withdrawn = effects_of(router, ANN, Undescribe("1"))
    assert len(withdrawn) == linked  # A neighbour knows the wider one.
    assert router.statistics().sources.nodes == 0


def test_a_shared_filter_remains_until_all_withdraw() -> None:
    """A withdrawal would remove another party's registration, or another identity's."""
    table: InterestTable[Filter] = InterestTable(FilterCoveringIndex())
    (node,) = table.register(ANN, "1", [WIDE])
    assert table.register(ANN, "1", [WIDE]) == (), "it is known"
    assert table.register(BOB, "1", [WIDE]) == table.register(ANN, "2", [WIDE]) == (node,)
    table.validate()
    with pytest.raises(RefusedError, match=str(Reason.UNKNOWN_SUBSCRIPTION)):
        table.withdraw(ANN, "3")
    assert table.withdraw(ANN, "1") == (node,)
    assert table.withdraw_all(BOB) == [node]
    assert (table.products_of(ANN), table.products_of(BOB)) == ([WIDE], [])
    assert table.withdraw(ANN, "2") == (node,)
    assert table.update({node: frozenset()}) == []
    table.validate()
    assert not len(table.index)


def test_one_identity_has_one_registration() -> None:
    """A withdrawal would remove other filters than the registered ones."""
    table: InterestTable[Filter] = InterestTable(None)
    table.register(ANN, "1", [WIDE, NARROW])
    assert table.register(ANN, "1", [NARROW, WIDE]) == ()
    with pytest.raises(RefusedError, match=str(Reason.IDENTITY_IN_USE)):
        table.register(ANN, "1", [WIDE])
    table.validate()


def test_a_neighbour_is_looked_up_at_all_its_owners() -> None:
    """Only one of a neighbour's several owners would be seen."""
    table: InterestTable[Advertisement] = InterestTable(OfferCoveringIndex())
    one, other = Advertisement("a any"), Advertisement("b any")
    table.register(NextHop(Neighbour("n"), "x"), "1", [one])
    table.register(NextHop(Neighbour("n"), "y"), "1", [other])
    table.register(Client("n"), "1", [one])
    assert table.products_of(Neighbour("n")) == [one, other]
    assert table.products_of(NextHop(Neighbour("n"), "y")) == [other]
    table.validate()


def test_a_full_table_has_no_room_for_one_more() -> None:
    """A link's unchecked filters would be routed, and the table grow by each."""
    table = router_with(limits=RouterLimits(filters_max=2))._subscriptions
    table.check_room(2)
    table.register(Client("ann"), "1", [WIDE, NARROW])
    with pytest.raises(RefusedError, match="a table is full"):
        table.check_room()
    table.check_room(0)


def test_a_table_is_filled_by_each_product() -> None:
    """A link's filters, which come together, would pass the limit, or be refused before it."""
    table = router_with(limits=RouterLimits(filters_max=4))._subscriptions
    table.register_each(Client("ann"), {"1": WIDE, "2": NARROW})
    with pytest.raises(RefusedError, match="a table is full"):
        table.register_each(Client("ben"), {str(number): WIDE for number in range(3)})
    table.register_each(Client("ben"), {"1": WIDE, "2": NARROW})
    with pytest.raises(RefusedError, match="a table is full"):
        table.register_each(Client("cid"), {"1": WIDE})
    table.validate()
