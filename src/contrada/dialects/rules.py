"""A rule of another dialect as it was read: its name, its filters, and what they leave open."""

from collections.abc import Callable
from dataclasses import dataclass

from contrada.model.filter import FilterSet
from contrada.model.notification import Notification


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    It matches a notification exactly where its filters do and its residue holds too. `residue`
    is the part that is no filter, in the dialect's own text, "" where the filters say it all;
    `residue_holds` evaluates it, None likewise. The filters then cover the rule.
    """

    name: str
    filters: FilterSet
    residue: str = ""
    residue_holds: Callable[[Notification], bool] | None = None

    def matches(self, notification: Notification) -> bool:
        """Whether the rule matches the notification. Exact."""
        if not self.filters.matches(notification):
            return False
        return self.residue_holds is None or self.residue_holds(notification)
