"""Where the larger real data sets stand.

They are not part of the project: a test that reads them skips where they are absent, and fails
there when CONTRADA_REQUIRE_SHARED=1 (`make verify`). Use the fixture `shared_data`, which marks the
test as well; where paths are needed while tests are collected, import the function and mark the
test with `pytest.mark.shared_data`.
"""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


def shared_data(*parts: str) -> Path:
    """The path of a file or directory of the shared data, which exists; else skips or fails."""
    root = os.environ.get("CONTRADA_SHARED_DATA") or REPOSITORY.parent / "shared" / "data"
    path = Path(root).joinpath(*parts)
    if path.exists():
        return path
    reason = (
        f"shared data {'/'.join(parts) or 'directory'} not found (CONTRADA_SHARED_DATA names it)"
    )
    if os.environ.get("CONTRADA_REQUIRE_SHARED") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)
