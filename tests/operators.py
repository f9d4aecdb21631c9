"""Operators of one's own that tests outside of tests/model/extensions need."""

import pytest

from contrada.model.languages import decision
from contrada.model.languages.atoms import Operator, failures, registry


class Failing(Operator):
    """An operator that always fails, and of which nothing can be decided."""

    name = "fails"

    def apply(self, value: bytes, constant: bytes) -> bool:
        raise ZeroDivisionError("on purpose")


def register_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register it until the test has ended; nothing is counted yet."""
    monkeypatch.setattr(registry, "_operators", dict(registry._operators))
    registry.register(Failing())
    failures.clear()
    decision.safe_answers.clear()
    decision.find.cache_clear()
