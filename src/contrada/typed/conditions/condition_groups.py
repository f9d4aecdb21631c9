"""Equal conditions of several subscribers, which are asked once."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from contrada.typed.conditions.conditions import Condition


@dataclass(slots=True, eq=False)
class ConditionGroup:
    """A condition, and the keys of all who gave it, or an equal one. `keys` is never empty."""

    key: Hashable
    condition: Condition
    keys: list[Any] = field(default_factory=list)

    @property
    def comparisons(self) -> float:
        """About how many comparisons the condition makes for an obvent."""
        return self.condition.effort()[0]
