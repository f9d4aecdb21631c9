"""What all tests share: markers that follow from the place, Hypothesis profiles, shared data."""

import gc
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import shared_data as shared

TESTS = Path(__file__).parent

# Derandomized: a run that fails, fails again. No deadline: machines differ and are shared.
settings.register_profile("default", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("quick", settings.get_profile("default"), max_examples=25)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=100_000)
settings.load_profile("default")

# A shell starts what stands in its background with Ctrl-C ignored, and programs inherit that:
# those that tests start and interrupt would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark what lies under tests/spark and what reads the shared data, so nobody can forget."""
    for item in items:
        if item.path.is_relative_to(TESTS / "spark"):
            item.add_marker(pytest.mark.spark)
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shared_data)


@pytest.fixture(scope="session")
def shared_data() -> Callable[..., Path]:
    """Finds a file of the shared data by the parts of its path; skips or fails when absent."""
    return shared.shared_data


@pytest.fixture
def without_old_objects() -> Iterator[None]:
    """What is measured is not to be blamed for what all tests before have left to look through."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()
