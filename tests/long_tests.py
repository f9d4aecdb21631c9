"""`NumberedTest`: one of the tests that are marked `long`, by a number.

    python -m tests.long_tests NUMBER

They have no seeds. By numbers a night runs all of them in turns, each in a run of its own.
"""

import sys
from typing import Final

import pytest

FOLDER: Final = "tests/integrations/spark"
"""Where all long tests are; to collect all tests takes half a minute."""


class NumberedTest:
    """A plugin of pytest that leaves the test of a number, which goes on from the first again."""

    def __init__(self, number: int) -> None:
        self._number = number

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Deselects all others."""
        if items:
            chosen = items[(self._number - 1) % len(items)]
            config.hook.pytest_deselected(items=[each for each in items if each is not chosen])
            items[:] = [chosen]


def main(number: int) -> int:
    """Runs the test; returns the status of pytest."""
    options = ["-v", "-rs", "-n0", "-p", "no:cacheprovider", "-o", "timeout=0", "-m", "long"]
    return pytest.main([*options, FOLDER], plugins=[NumberedTest(number)])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
