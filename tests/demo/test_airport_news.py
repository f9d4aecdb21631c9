"""The airport news example: deliveries equal a loop over the feed's entries."""

import pytest

from examples.airport_news import run
from tests.asynchronous import on_loop
from tests.service.ways import service_of


@pytest.mark.parametrize("name", ["embedded", "broker", "network"])
@on_loop
async def test_news_come_to_whom_they_concern(name: str) -> None:
    """A bulletin would be lost, delivered twice, or lack airports."""
    async with service_of(name) as service:
        found, wanted = await run.follow(service)
    assert found == wanted


def test_what_is_expected_is_not_empty() -> None:
    """The example would compare nothing with nothing."""
    wanted = run.expected()
    assert wanted.counts == ((60, 0, 0), (6, 5, 54))
    assert wanted.received.total() > 40
    assert any(len(airports) == 3 for _, _, airports in wanted.received)
