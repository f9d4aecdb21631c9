"""`RouterLimits`: the values that a router takes."""

import pytest

from contrada.model import Filter
from contrada.routing.router import Router
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import Client, Received, Refused, Subscribe


def test_one_subscription_fits_the_limit_of_all() -> None:
    """A subscription within its own limit would exceed the limit of the whole table."""
    limits = RouterLimits()
    assert limits.filters_per_subscription_max < limits.filters_max
    assert Subscribe("1", Filter("a = 1")).owner == ""


@pytest.mark.parametrize("most", [1, 2])
def test_a_router_keeps_to_its_limits(most: int) -> None:
    """A limit that was passed in would have no effect."""
    router = Router(limits=RouterLimits(registrations_max=most))
    messages = [Subscribe(f"{number}", Filter({"a": number})) for number in range(3)]
    effects = [router.handle(Received(Client("c"), message), 0) for message in messages]
    assert sum(isinstance(each, Refused) for some in effects for each in some) == 3 - most
