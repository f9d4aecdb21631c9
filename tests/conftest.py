"""What all tests share: markers that follow from the place, Hypothesis profiles, shared data."""

import gc
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from bench.java import has_java
from contrada.model.native import INTERPRETED_VARIABLE, NATIVE
from tests import shared_data as shared

TESTS = Path(__file__).parent

# Derandomized: a run that fails, fails again. No time limits: machines differ and are shared.
settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    print_blob=True,
)
settings.register_profile("quick", settings.get_profile("default"), max_examples=25)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=100_000)
# Examples of `--hypothesis-seed`, and none of former runs.
settings.register_profile(
    "seeded",
    settings.get_profile("default"),
    max_examples=int(os.environ.get("CONTRADA_EXAMPLES", "10000")),
    derandomize=False,
    database=None,
)
settings.load_profile("default")

# A shell starts what stands in its background with Ctrl-C ignored, and programs inherit that:
# those that tests start and interrupt would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)


IS_CORE = os.environ.get("CONTRADA_GROUP") == "core"
if NATIVE is None:
    # Commands that tests start would log it, each of them.
    os.environ[INTERPRETED_VARIABLE] = "1"
collect_ignore = ["integrations/spark"] if IS_CORE else []
MISSING = re.compile(r"No module named '(\w+)")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skips modules whose libraries are not in an environment of `make setup GROUP=core`."""
    report = yield
    if IS_CORE and report.failed and (found := MISSING.search(report.longreprtext)):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"{found[1]} is not in the core group")
    return report


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark what follows: of the place, of reading the shared data, of being one case of many."""
    cases: Counter[str] = Counter()
    for item in items:
        if (every := _quick_every(item)) is not None:
            test = item.nodeid.partition("[")[0]
            if cases[test] % every:
                item.add_marker(pytest.mark.slow)
            cases[test] += 1
        if item.path.is_relative_to(TESTS / "integrations" / "spark"):
            item.add_marker(pytest.mark.spark)
        if not has_java() and item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.skip(reason="no Java, which Spark needs: make java"))
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shared_data)


def _quick_every(item: pytest.Item) -> int | None:
    if item.get_closest_marker("quick_first") is not None:
        return sys.maxsize
    mark = item.get_closest_marker("quick_every")
    return None if mark is None else int(mark.args[0])


@pytest.fixture(scope="session")
def shared_data() -> Callable[..., Path]:
    """Finds a file of the shared data by the parts of its path; skips or fails when absent."""
    return shared.shared_data


@pytest.fixture(scope="session", autouse=True)
def _no_store_stays_here() -> Iterator[None]:
    """A broker that a test starts in the folder of the tests would leave its store there."""
    before = {*Path.cwd().glob("contrada*.db")}
    yield
    assert {*Path.cwd().glob("contrada*.db")} <= before, "a test leaves a store where it is started"


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Ten thousand tests stay until the end: no collection looks through them again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """What ends with the process is let go of as usual."""
    gc.unfreeze()


@pytest.fixture
def without_old_objects() -> Iterator[None]:
    """What is measured is not to be blamed for what all tests before have left to look through."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
