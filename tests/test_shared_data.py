"""The helper that finds the shared data."""

from pathlib import Path

import pytest

from tests.shared_data import shared_data


def test_found_by_its_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests would look for data somewhere else than they were told."""
    (tmp_path / "flights").mkdir()
    monkeypatch.setenv("CONTRADA_SHARED_DATA", str(tmp_path))
    assert shared_data("flights") == tmp_path / "flights"


@pytest.mark.parametrize(
    ("required", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)]
)
def test_absent_skips_unless_required(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, required: str, outcome: type[BaseException]
) -> None:
    """`make verify` would pass without the data, or everything else would fail without it."""
    monkeypatch.setenv("CONTRADA_SHARED_DATA", str(tmp_path))
    monkeypatch.setenv("CONTRADA_REQUIRE_SHARED", required)
    with pytest.raises(outcome, match=r"flights/x\.csv not found"):
        shared_data("flights", "x.csv")
