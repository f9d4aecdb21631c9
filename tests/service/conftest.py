"""Each test of the interface is one for every way to have a service."""

import pytest

from tests.service.ways import NAMES

SLOW = {"network", "from a server"}
"""Ways of which others that are quick have each half: `to a server` has both."""


@pytest.fixture(
    params=[pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in NAMES]
)
def name(request: pytest.FixtureRequest) -> str:
    """The name of a way to have a service."""
    found: str = request.param
    return found
