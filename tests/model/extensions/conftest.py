"""Fixtures for tests of extensions: a registry that forgets, counters that start at zero."""

import pytest

from contrada.model.languages import decision
from contrada.model.languages.atoms import failures, registry


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes a test's registrations after it, and clears the counters."""
    monkeypatch.setattr(registry, "_operators", dict(registry._operators))
    failures.clear()
    decision.safe_answers.clear()
