"""The compiled module, and the sources that run in its place."""

import logging
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import contrada
from contrada.model import native
from contrada.model.native import INTERPRETED_VARIABLE, load_native, source_digest

ROOT = Path(__file__).resolve().parents[2]


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


def test_all_compiled_modules_are_in_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of a module that is missing there would leave the one before in use."""
    text = (ROOT / "native" / "source.py").read_text("utf-8")
    compiled = set(re.findall(r'^ .*"(contrada\.matching\.kernels\.\w+)"', text, re.MULTILINE))
    compiled |= set(re.findall(r'"(contrada\.model\.algebra\.\w+)"', text))
    installed = Path(contrada.__file__).parents[1]
    read: set[str] = set()

    def reading(path: Path) -> bytes:
        read.add(".".join(path.relative_to(installed).with_suffix("").parts))
        return b""

    monkeypatch.setattr(Path, "read_bytes", reading)
    source_digest()
    assert len(compiled) > 10
    assert read >= compiled
