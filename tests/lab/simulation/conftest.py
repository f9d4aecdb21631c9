"""What the tests of simulation share: how the tables of their routers are held."""

import pytest

from tests import plain_tables

_tables = pytest.fixture(autouse=True, scope="module")(plain_tables.in_quick_tests)
