"""Site-Select: the selected sites and their results equal a loop over all."""

from contextlib import AsyncExitStack

import pytest

import contrada as ct
from contrada.net.broker.broker import Broker
from examples.site_select import run
from examples.site_select.sites import load
from tests.asynchronous import on_loop, until
from tests.net.networks import FIVE, network

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["embedded", "broker", "network"])
@on_loop
async def test_those_are_selected_that_a_bit_set_selects(name: str) -> None:
    """A command would reach the wrong sites, or its acknowledgements would be counted wrongly."""
    async with AsyncExitStack() as running:
        if name == "embedded":
            service = await running.enter_async_context(ct.connect())
            found, wanted = await run.select(service, [service])
        elif name == "broker":
            broker = await running.enter_async_context(Broker(port=0))
            asker = await running.enter_async_context(ct.connect(broker.address))
            host = await running.enter_async_context(ct.connect(broker.address))
            found, wanted = await run.select(asker, [host])
        else:
            brokers = await running.enter_async_context(network(5, FIVE))
            services = [
                await running.enter_async_context(ct.connect(each.address)) for each in brokers
            ]

            async def settled() -> None:
                await until(lambda: brokers.is_at_rest)

            found, wanted = await run.select(services[0], services, settled)
    assert found == wanted
    assert all(wanted.results.values())
    assert wanted.held


def test_the_sites_differ() -> None:
    """The example would ask all sites, or none."""
    sites, carriers = load()
    wanted = run.expected(sites, carriers)
    assert len(sites) > 80
    assert all(0 < len(each) < len(sites) for each in wanted.asked.values())
    assert len(set(wanted.asked.values())) == 3
