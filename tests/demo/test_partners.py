"""The partners example: deliveries equal a loop over the flights."""

import pytest

from examples.partners import run
from tests.asynchronous import on_loop


@pytest.mark.slow
@on_loop
async def test_partners_read_what_is_theirs() -> None:
    """A carrier would see the flights of another, or miss its own."""
    found, wanted = await run.share()
    assert found == wanted


def test_what_is_expected_is_not_empty() -> None:
    """The example would compare nothing with nothing."""
    wanted = run.expected(run.flights())
    assert {carrier for carrier, _ in wanted.received} == set(run.CARRIERS)
    assert 200 < wanted.received.total() < run.FLIGHTS
