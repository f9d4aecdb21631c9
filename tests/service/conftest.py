"""Each test of the interface is one for every way to have a service."""

import pytest

from tests.service.ways import NAMES


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """The name of a way to have a service."""
    found: str = request.param
    return found
