"""The compiled module, and the sources that run in its place."""

import logging
import sys
from types import SimpleNamespace

import pytest

from contrada.model import native
from contrada.model.native import INTERPRETED_VARIABLE, load_native, source_digest


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (SimpleNamespace(SOURCES="0"), "was built from other sources"),
        (SimpleNamespace(), "was built from other sources"),
        (None, "is not built"),
    ],
)
def test_another_module_is_not_used(
    found: object, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In a checkout after a pull an import would raise, or kernels would read other constants."""
    monkeypatch.delenv(INTERPRETED_VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "contrada._native", found)
    with caplog.at_level(logging.WARNING, "contrada"):
        assert load_native() is None
    (record,) = caplog.records
    assert f"contrada._native {reason}" in record.getMessage()


def test_the_module_of_these_sources_is_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything would run interpreted; also where an installation has no text of the sources."""
    monkeypatch.delenv(INTERPRETED_VARIABLE, raising=False)
    for digest in (source_digest(), ""):
        found = SimpleNamespace(SOURCES=source_digest())
        monkeypatch.setattr(native, "source_digest", lambda digest=digest: digest)
        monkeypatch.setitem(sys.modules, "contrada._native", found)
        assert load_native() is found
    assert not caplog.records
