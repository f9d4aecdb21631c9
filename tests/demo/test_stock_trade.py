"""The stock trade example: all purchases follow from a loop over the quotes."""

import pytest

from examples.stock_trade import collections, handles, run
from examples.stock_trade.quotes import closes
from tests.asynchronous import on_loop
from tests.service.ways import service_of

STYLES = {"handles": handles.trading, "collections": collections.trading}


@pytest.mark.quick_first
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", ["embedded", "broker", "network"])
@on_loop
async def test_all_is_bought_that_is_cheap_enough(name: str, style: str) -> None:
    """The thesis' example would not work, or trade differently over a network."""
    async with service_of(name) as service:
        found, wanted = await run.trade(service, STYLES[style])
    assert found == wanted
    assert wanted.bought.total() > 20
    assert wanted.expired == 2


def test_what_is_expected_is_not_empty() -> None:
    """The example would compare nothing with nothing."""
    quotes = closes(run.FIRST, run.LAST)
    assert len({close.company for close in quotes}) == 5
    assert run.expected([], "x").bought.total() == 0
    assert run.expected(quotes, "x") != run.expected(quotes[:50], "x")
