"""`RuleState`: one Sigma rule while pipelines change it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from contrada.errors import ContradaError
from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.integrations.dialects.sigma.log_sources import UNKNOWN, LogSource
from contrada.integrations.dialects.sigma.sigma_conditions import parse_conditions
from contrada.integrations.dialects.sigma.sigma_items import (
    RuleConditions,
    SelectionItem,
    SelectionReader,
    SigmaSelection,
    change_items,
    items_of,
)
from contrada.integrations.dialects.sigma.sigma_refusals import refusal
from contrada.integrations.dialects.sigma.sigma_values import Spelling
from contrada.model.algebra.expression import And, Formula, negation
from contrada.model.rule import Note

CHANGED_ITEMS_MAX: Final = 200_000
"""Items of a Sigma rule, times the transformations of its pipelines. Beyond it: the rule is
refused."""


@dataclass(slots=True)
class RuleState:
    """A rule: its document, log source and selections, and the state of the pipelines.

    A selection is None if nothing is left of it, and an error if it cannot be read; that refuses
    the rule where its condition uses the selection. `added` are further selections, each with
    whether it must not match.
    """

    document: Mapping[Any, Any]
    source: LogSource
    spelling: Spelling
    selections: dict[str, SigmaSelection | ContradaError | None] = field(default_factory=dict)
    added: list[tuple[SigmaSelection | None, bool]] = field(default_factory=list)
    is_correlation: bool = False
    sources: Sequence[LogSource] = ()
    """The log sources of the rules that a correlation refers to."""
    placeholders: Mapping[str, Sequence[str]] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    applied: set[str] = field(default_factory=set)
    notes: tuple[Note, ...] = ()

    def items(self) -> Iterator[SelectionItem]:
        """Yields all items that can be read."""
        found = [*self.selections.values(), *(each for each, _ in self.added)]
        yield from items_of(
            each for each in found if each is not None and not isinstance(each, ContradaError)
        )

    def change(self, change: Callable[[SelectionItem], SigmaSelection | None]) -> None:
        """Replaces every item by the result of a function. Raises LimitError."""
        known: dict[int, Any] = {}
        self.count_items(sum(1 for _ in self.items()))
        for name, each in self.selections.items():
            if each is not None and not isinstance(each, ContradaError):
                self.selections[name] = change_items(each, change, known)
        self.added = [
            (each if each is None else change_items(each, change, known), is_negated)
            for each, is_negated in self.added
        ]

    def count_items(self, number: int) -> None:
        """Counts items that a pipeline reads or makes. Raises LimitError."""
        self.spelling.use("CHANGED_ITEMS_MAX", CHANGED_ITEMS_MAX, number)

    def source_notes(self) -> tuple[Note, ...]:
        """Returns the notes on the log source."""
        if self.notes or self.added:
            return self.notes
        return (Note(UNKNOWN, self.source.shown() or "none is named"),)


def read_state(document: Any, spelling: Spelling) -> RuleState:
    """Returns the state of a rule before all pipelines. Raises RefusedRuleError, LimitError."""
    detection = document.get("detection")
    source = document.get("logsource") or {}
    if not isinstance(detection, dict) or not isinstance(source, dict):
        raise refusal(refusals.NO_RULE, document.get("title"))
    state = RuleState(document, LogSource.of(source), spelling)
    reader = SelectionReader(spelling)
    for name, given in detection.items():
        if str(name) in state.selections:
            raise refusal(refusals.SAME_SELECTION, [*detection])
        if name == "timeframe":
            raise refusal(refusals.AGGREGATION, given, "timeframe")
        if name == "condition":
            continue
        try:
            state.selections[str(name)] = reader.read(given, str(name))
        except ContradaError as error:
            state.selections[str(name)] = error
    return state


def condition_of(state: RuleState, conditions: RuleConditions) -> Formula:
    """Returns the whole condition of a rule. Raises RefusedRuleError with the place, LimitError."""

    def selection(name: str) -> Formula | None:
        found = state.selections[name]
        if isinstance(found, ContradaError):
            raise found
        return found if found is None else conditions.of(found)

    texts: list[str] = []
    given = state.document["detection"].get("condition")
    for text in given if isinstance(given, list) and given else [given]:
        if not isinstance(text, str):
            raise refusal(refusals.NO_CONDITION, text)
        texts.append(text)
    parts = [*_added(state.added, conditions), parse_conditions(texts, state.selections, selection)]
    left = tuple(each for each in parts if each is not None)
    if not left:
        raise refusal(refusals.DROPPED)
    return And(left)


def _added(
    added: Iterable[tuple[SigmaSelection | None, bool]], conditions: RuleConditions
) -> Iterator[Formula]:
    for each, is_negated in added:
        if each is not None:
            yield negation(conditions.of(each)) if is_negated else conditions.of(each)
