"""`Rule`, a rule of another dialect as filters and a residue; `RefusedRule`, an unreadable one;
`CorrelationRule`, one over several notifications as patterns.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from contrada.errors import ContradaError, InvalidNameError, LimitError, RefusedRuleError
from contrada.model.algebra.filter import FilterSet
from contrada.model.algebra.notification import Notification
from contrada.model.algebra.pattern import Pattern
from contrada.model.domains.values import check_user_name
from contrada.model.languages.atoms import failures

NOT_FILTERS: Final = "filters alone cannot express it"
"""The reason that refuses a rule with a residue as a filter."""


NO_TEXT: Final = "a rule that is no text"  # The reason that refuses a rule that is no text


class Note(NamedTuple):
    """A warning about a rule. `reason` is one of a few fixed phrases."""

    reason: str
    found: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.found}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: it matches a notification exactly if its filters do and its residue holds.

    `residue` is the part that is no filter, in the dialect's own text, "" if there is none;
    `residue_holds` evaluates it, None likewise. `about` is the author's metadata, such as `title`,
    `author`, `level` and `tags`. Programs that show matches show it, too; many licences require
    that.
    """

    name: str
    filters: FilterSet
    residue: str = ""
    residue_holds: Callable[[Notification], bool] | None = None
    notes: tuple[Note, ...] = ()
    about: Mapping[str, str | list[str]] = field(default_factory=dict)

    def exact_filters(self, dialect: str) -> FilterSet:
        """Returns the filters if they are the whole rule. Raises RefusedRuleError otherwise."""
        if self.residue_holds is not None:
            raise RefusedRuleError(dialect, NOT_FILTERS, self.residue)
        return self.filters

    def matches(self, notification: Notification | Mapping[str, Any]) -> bool:
        """Whether the rule matches the notification, or one of these attributes. Exact."""
        if not isinstance(notification, Notification):
            notification = Notification(notification)
        if not self.filters.matches(notification):
            return False
        return self.residue_holds is None or residue_accepts(self.residue_holds, notification)


@dataclass(frozen=True, slots=True)
class CorrelationRule:
    """A rule over several notifications: one of its patterns matches them.

    `filters` match notifications that satisfy the rule alone. `about` is as that of `Rule`.
    """

    name: str
    patterns: tuple[Pattern, ...]
    filters: FilterSet
    about: Mapping[str, str | list[str]] = field(default_factory=dict)

    @property
    def asked(self) -> FilterSet:
        """The filters of all notifications that can take part."""
        parts = {part: None for pattern in self.patterns for part in pattern.filters}
        return FilterSet([*parts, *self.filters.filters])


def residue_accepts(residue: Callable[[Notification], bool], notification: Notification) -> bool:
    """Whether a residue holds. An error counts as no, and in the operators' failures.

    A residue may not accept the type of a value that the filters match, which must not stop other
    rules.
    """
    try:
        return residue(notification)
    except Exception:  # noqa: BLE001 - the code of the rule's author, or its type
        failures.add(getattr(residue, "__qualname__", type(residue).__qualname__))
        return False


@dataclass(frozen=True, slots=True)
class RefusedRule:
    """A rule that could not be read: its name, "" if it has none, and the error."""

    name: str
    error: ContradaError

    @property
    def reason(self) -> str:
        """One of a few fixed phrases, so that refusals can be counted by it."""
        if isinstance(self.error, LimitError):
            return f"more than {self.error.limit} allows"
        return str(getattr(self.error, "reason", self.error))


def require_text(dialect: str, given: object) -> str:
    """Returns the text. Raises RefusedRuleError for another object."""
    if not isinstance(given, str):
        raise RefusedRuleError(dialect, NO_TEXT, given)
    return given


def require_name(dialect: str, reason: str, name: str, place: str = "") -> str:
    """Returns the name. Raises RefusedRuleError with the reason if no attribute can have it."""
    try:
        return check_user_name(name)
    except InvalidNameError:
        raise RefusedRuleError(dialect, reason, name, place) from None


ReadRules: TypeAlias = Callable[[str], Iterator[Rule | RefusedRule]]
"""The type of `read_rules` of each dialect: returns a file's rules in order.

It never raises for an invalid text: a rule that cannot be read is a `RefusedRule`, and so is,
alone, a text that is no file of rules."""


ReadAllRules: TypeAlias = Callable[..., Iterator[Rule | CorrelationRule | RefusedRule]]
"""As `ReadRules`, also with rules over several notifications, and with options."""


SEVERAL_RULES: Final = "more than one rule"
"""The reason that refuses a text with several rules where one is asked for."""


def only_rule(dialect: str, rules: Iterator[Rule | RefusedRule]) -> Rule:
    """Returns the only rule of a text. Reads no further than the second one.

    Raises RefusedRuleError for several, and the error of a refused one.
    """
    found = list(islice(rules, 2))
    if len(found) != 1:
        raise RefusedRuleError(dialect, SEVERAL_RULES if found else NO_TEXT)
    (rule,) = found
    if isinstance(rule, RefusedRule):
        raise rule.error
    return rule


AnyRule = TypeVar("AnyRule", Rule, CorrelationRule)


def read_or_refuse(name: str, read: Callable[[], AnyRule]) -> AnyRule | RefusedRule:
    """Calls `read`; an error gives a refused rule of this name."""
    try:
        return read()
    except ContradaError as error:
        return RefusedRule(name, error)
