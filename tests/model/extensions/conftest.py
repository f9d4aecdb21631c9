"""What the tests of extensions share: a registry that forgets, counters that start at zero."""

import pytest

from contrada.model.languages import decision
from contrada.model.languages.atoms import failures, registry


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it; nothing is counted yet."""
    monkeypatch.setattr(registry, "_operators", dict(registry._operators))
    failures.clear()
    decision.safe_answers.clear()
