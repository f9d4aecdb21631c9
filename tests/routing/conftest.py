"""Fixtures of the routing tests: the representation of tables."""

import pytest

from tests import plain_tables

_tables = pytest.fixture(autouse=True, scope="module")(plain_tables.in_quick_tests)
