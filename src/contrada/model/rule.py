"""Rules of other dialects: as they were read, with what their filters leave open, or refused."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from contrada.errors import ContradaError, LimitError, RefusedRuleError
from contrada.model.algebra.filter import FilterSet
from contrada.model.algebra.notification import Notification
from contrada.model.languages.atoms import failures

NOT_FILTERS: Final = "no filters alone say it"
"""Why a rule that has a residue is refused where filters are asked for."""


NO_TEXT: Final = "a rule that is no text"
"""Why what is no text is refused where a rule's text is asked for."""


class Note(NamedTuple):
    """What whoever takes a rule should know of it. `reason` is one of a few fixed phrases."""

    reason: str
    found: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.found}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    It matches a notification exactly where its filters do and its residue holds too. `residue`
    is the part that is no filter, in the dialect's own text, "" where the filters say it all;
    `residue_holds` evaluates it, None likewise. The filters then cover the rule.

    `about` is what its author says of it, such as `title`, `author`, `level` and `tags`: texts and
    lists of texts. Whoever shows what a rule has matched shows this with it; many a licence asks
    for that.
    """

    name: str
    filters: FilterSet
    residue: str = ""
    residue_holds: Callable[[Notification], bool] | None = None
    notes: tuple[Note, ...] = ()
    about: Mapping[str, str | list[str]] = field(default_factory=dict)

    def exact_filters(self, dialect: str) -> FilterSet:
        """Returns the filters, where they are the whole rule. Raises RefusedRuleError where not."""
        if self.residue_holds is not None:
            raise RefusedRuleError(dialect, NOT_FILTERS, self.residue)
        return self.filters

    def matches(self, notification: Notification | Mapping[str, Any]) -> bool:
        """Whether the rule matches the notification, or that of these attributes. Exact."""
        if not isinstance(notification, Notification):
            notification = Notification(notification)
        if not self.filters.matches(notification):
            return False
        return self.residue_holds is None or says_yes(self.residue_holds, notification)


def says_yes(residue_holds: Callable[[Notification], bool], notification: Notification) -> bool:
    """Whether a residue holds: not where it raises, which is counted among operators' failures.

    Its type may not read what the filters match, and it is no fault of other rules.
    """
    try:
        return residue_holds(notification)
    except Exception:  # noqa: BLE001 - the code of who wrote the rule, or its type
        failures.add(getattr(residue_holds, "__qualname__", type(residue_holds).__qualname__))
        return False


@dataclass(frozen=True, slots=True)
class RefusedRule:
    """One rule that could not be read: its name, "" where it has none, and the error."""

    name: str
    error: ContradaError

    @property
    def reason(self) -> str:
        """One of a few fixed phrases, so that refusals can be counted by it."""
        if isinstance(self.error, LimitError):
            return f"more than {self.error.limit} allows"
        return str(getattr(self.error, "reason", self.error))


def checked_text(dialect: str, given: object) -> str:
    """What was given, where it is text. Raises RefusedRuleError where not."""
    if not isinstance(given, str):
        raise RefusedRuleError(dialect, NO_TEXT, given)
    return given


ReadRules: TypeAlias = Callable[[str], Iterator[Rule | RefusedRule]]
"""What each dialect of rules in files has as `read_rules`: a file's rules in their order.

It takes the text of a file and raises nothing that the text is to blame for: a rule that cannot
be read is a `RefusedRule`, and so is, alone, a text that is no file of rules at all.
"""


def read_or_refused(name: str, read: Callable[[], Rule]) -> Rule | RefusedRule:
    """What `read` returns, or the rule of this name as refused where it raises."""
    try:
        return read()
    except ContradaError as error:
        return RefusedRule(name, error)
