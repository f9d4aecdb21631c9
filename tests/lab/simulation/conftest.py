"""Fixtures of the simulation tests: the representation of tables."""

import pytest

from tests import plain_tables

_compare_tables = pytest.fixture(autouse=True, scope="module")(plain_tables.in_quick_tests)
