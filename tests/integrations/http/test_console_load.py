"""The receiver under a load of 10,000 events per second; `console_load` measures longer ones."""

import pytest

from tests.asynchronous import on_loop
from tests.browsers import needs_browser
from tests.integrations.http.console_load import BOUNDS, watch


@pytest.mark.slow
@needs_browser
@on_loop
async def test_a_page_counts_a_load_exactly() -> None:
    """A person would read a wrong count, or the page would grow until the browser ends it."""
    found = await watch(20)
    assert found["published"] == 200_000
    for name in ("count", "memory"):
        assert BOUNDS[name](found), found
