"""The demo's network: its steps on the real quotes, and the console that `--serve` ends in."""

import asyncio
from pathlib import Path

import httpx
import pytest

import contrada as ct
from contrada.net.client.tcp_service import TcpService
from examples.demo import tour
from examples.demo.desks import StockQuote
from examples.demo.network import LINKS, network
from examples.demo.run import keep_alive
from examples.demo.sources import FIRST_DAY, write_sources
from examples.demo.tour import read_quotes, steady_rate
from tests.asynchronous import on_loop


@pytest.fixture(scope="module")
def quotes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quotes of the demo, in a file."""
    return write_sources(tmp_path_factory.mktemp("sources"), FIRST_DAY, FIRST_DAY).quotes


@pytest.mark.slow
@on_loop
async def test_every_step_receives_what_is_due(quotes: Path) -> None:
    """The demo would show a feature that does not work, or lose certified orders at a kill."""
    year = read_quotes(quotes)
    assert len({quote.symbol for quote in year}) >= 3
    async with network() as brokers:
        steps = await tour.tour(brokers, year)
        assert await steady_rate(brokers.address("oslo")) > 0
    assert [each.name for each in steps] == [
        *("a filter", "a typed function", "a pattern", "a rule of Sigma"),
        *("a question", "a killed broker"),
    ]
    assert all(each.is_right and each.expected == each.received > 0 for each in steps), steps


def test_a_missing_or_a_wrong_item_is_seen() -> None:
    """The demo would call all right whatever it receives."""
    assert tour._step("s", "", ["a", "b"], ["b", "a"]).is_right
    assert not tour._step("s", "", ["a", "b"], ["a", "c"]).is_right
    assert not tour._step("s", "", ["a", "b"], ["a"]).is_right
    assert not tour._step("s", "", ["a"], ["a", "a"]).is_right


@pytest.mark.slow
@on_loop
async def test_a_served_network_has_a_console_and_quotes(quotes: Path) -> None:
    """A person would look at a network without traffic, or at no page."""
    async with network() as brokers:
        serving = asyncio.create_task(keep_alive(brokers, quotes))
        async with (
            ct.connect(brokers.address("oslo")) as reader,
            reader.subscribe(StockQuote) as events,
            asyncio.timeout(20),
        ):
            quote = await anext(events)
        async with httpx.AsyncClient(follow_redirects=True) as browser:
            page = await browser.get(brokers.console)
        async with TcpService(brokers.address("oslo"), reconnect=False) as service:
            async with asyncio.timeout(20):
                while (await service.broker_statistics())["links"] < len(LINKS) - 1:
                    pass
        assert not serving.done()
        serving.cancel()
        await asyncio.wait((serving,))
    assert quote.symbol
    assert page.status_code == 200
    assert "<title>" in page.text
