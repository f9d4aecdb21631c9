"""`SelectionItem`, `ItemGroup` and `RuleState`: Sigma rules between text and value sets.

Items and their groups are the selections of a rule. They are immutable: pipelines replace them in
the rule's state (`sigma_pipelines`), and `RuleConditions` turns them into conditions. What YAML
aliases repeat is one object, and stays one.

Source: Sigma specification 2.1.0, section on detection.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from contrada.errors import ContradaError
from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.integrations.dialects.sigma.log_sources import UNKNOWN, LogSource
from contrada.integrations.dialects.sigma.sigma_conditions import parse_conditions
from contrada.integrations.dialects.sigma.sigma_refusals import field_name, refusal
from contrada.integrations.dialects.sigma.sigma_residue import RuleResidue
from contrada.integrations.dialects.sigma.sigma_values import (
    FieldReference,
    Scalar,
    SigmaValue,
    Spelling,
    Text,
    TimePart,
    placed,
    plain_of,
    read_value,
    set_of,
)
from contrada.integrations.dialects.yaml_documents import Document
from contrada.model.algebra.expression import And, Formula, Member, Or, negation
from contrada.model.algebra.value_set import union
from contrada.model.domains.values import check_user_name
from contrada.model.rule import Note

_OF_ITEMS: Final = ("all", "neq")
"""Modifiers that join or negate values."""

_EXPANDING: Final = frozenset(("windash", "base64offset"))


@dataclass(frozen=True, slots=True, eq=False)
class SelectionItem:
    """A field, None for keywords, and its values; each has alternatives, one of which must match.

    With `every` all values must match, else one. `negated` negates the whole item. `is_expanded`
    tells that `windash` or `base64offset` made the alternatives. `applied` has the ids of the
    pipelines' steps that changed it.
    """

    field: str | None
    values: tuple[tuple[SigmaValue, ...], ...]
    place: str
    every: bool = False
    negated: bool = False
    is_expanded: bool = False
    applied: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class ItemGroup:
    """Parts that must all match, or else one of them."""

    parts: "tuple[SelectionItem | ItemGroup, ...]"
    every: bool


SigmaSelection: TypeAlias = SelectionItem | ItemGroup


class SelectionReader:
    """Reads the selections of one rule. A list or map that aliases repeat is read once."""

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling
        self._known: dict[int, SigmaSelection] = {}

    def read(self, given: Document, place: str) -> SigmaSelection:
        """Returns a selection. Raises RefusedRuleError with the place, and LimitError."""
        if not isinstance(given, list | dict):
            return self._keywords((given,), (), place)
        if not given:
            raise refusal(refusals.EMPTY_SELECTION, given, place)
        known = self._known.get(id(given))
        if known is None:
            if isinstance(given, list):
                known = ItemGroup(tuple(self.read(each, place) for each in given), every=False)
            else:
                parts = tuple(self._item(key, each, place) for key, each in given.items())
                known = ItemGroup(parts, every=True)
            self._known[id(given)] = known
        return known

    def _item(self, key: object, given: Document, place: str) -> SelectionItem:
        place = f"{place}.{key}"
        if not isinstance(key, str):
            raise refusal(refusals.NAME, key, place)
        field, *modifiers = key.split("|")
        values = given if isinstance(given, list) else [given]
        if not values:
            raise refusal(refusals.EMPTY_SELECTION, given, place)
        if not field:
            return self._keywords(values, modifiers, place)
        return self._made(field, values, modifiers, place)

    def _keywords(
        self, values: Sequence[Document], modifiers: Sequence[str], place: str
    ) -> SelectionItem:
        """Returns the item for texts that are parts of some attribute."""
        for value in values:
            if isinstance(value, list | dict | None):
                raise refusal(refusals.KEYWORDS, value, place)
        texts = [each if isinstance(each, str) else str(each).lower() for each in values]
        changed = any(each not in _OF_ITEMS for each in modifiers)
        return self._made(None, texts, modifiers if changed else (*modifiers, "contains"), place)

    def _made(
        self, field: str | None, values: Sequence[Document], modifiers: Sequence[str], place: str
    ) -> SelectionItem:
        changes = [each for each in modifiers if each not in _OF_ITEMS]
        return SelectionItem(
            field,
            tuple(read_value(value, changes, self._spelling, place) for value in values),
            place,
            every="all" in modifiers,
            negated="neq" in modifiers,
            is_expanded=not _EXPANDING.isdisjoint(modifiers),
        )


def change_items(
    selection: SigmaSelection,
    change: Callable[[SelectionItem], SigmaSelection | None],
    known: dict[int, Any],
) -> SigmaSelection | None:
    """Returns the selection with each item changed, None if nothing is left of it.

    `known` has the results by id.
    """
    if id(selection) not in known:
        if isinstance(selection, SelectionItem):
            changed = change(selection)
        else:
            parts = (change_items(each, change, known) for each in selection.parts)
            left = tuple(each for each in parts if each is not None)
            changed = ItemGroup(left, selection.every) if left else None
            if left == selection.parts:
                changed = selection
        known[id(selection)] = changed
    found: SigmaSelection | None = known[id(selection)]
    return found


def items_of(selections: Iterable[SigmaSelection]) -> Iterable[SelectionItem]:
    """Yields all items, each once."""
    waiting, seen = list(selections), set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, SelectionItem):
            yield each
        else:
            waiting += each.parts


class RuleConditions:
    """Turns the selections of one rule into conditions; `residue` has what no set expresses."""

    def __init__(self, keywords: Sequence[str], residue: RuleResidue) -> None:
        self._keywords = tuple(map(check_user_name, keywords))
        self._residue = residue
        self._known: dict[int, Formula] = {}

    def of(self, selection: SigmaSelection) -> Formula:
        """Returns the condition of a selection. Raises RefusedRuleError with the place."""
        known = self._known.get(id(selection))
        if known is None:
            if isinstance(selection, SelectionItem):
                known = self._of_item(selection)
            else:
                parts = tuple(map(self.of, selection.parts))
                known = And(parts) if selection.every else Or(parts)
            self._known[id(selection)] = known
        return known

    def _of_item(self, item: SelectionItem) -> Formula:
        if item.field is None and not self._keywords:
            raise refusal(refusals.NOT_SEARCHED, _shown(item.values[0][0]), item.place)
        names = self._keywords if item.field is None else (item.field,)
        for name in names:
            field_name(name, item.place)
        if item.every:
            joined: Formula = And(tuple(self._any_of(names, each, item) for each in item.values))
        else:
            joined = self._any_of(names, [each for value in item.values for each in value], item)
        return negation(joined) if item.negated else joined

    def _any_of(
        self, names: Sequence[str], values: Iterable[SigmaValue], item: SelectionItem
    ) -> Formula:
        """Returns the condition that one of the attributes has one of the values."""
        parts: list[Formula] = []
        sets = []
        for value in values:
            if isinstance(value, FieldReference | TimePart):
                parts += (self._residue.comparison(name, value, item.place) for name in names)
                continue
            with placed(_shown(value), item.place):
                sets.append(set_of(value))
        if sets:
            joined = union(sets)
            parts += (Member(name, joined) for name in names)
        return parts[0] if len(parts) == 1 else Or(tuple(parts))


def _shown(value: SigmaValue) -> object:
    if isinstance(value, Text):
        return plain_of(value.parts)
    return value.value if isinstance(value, Scalar) else value


# --- a rule while pipelines change it -----------------------------------------------------------

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
    added = [
        negation(conditions.of(each)) if is_negated else conditions.of(each)
        for each, is_negated in state.added
        if each is not None
    ]
    parts = [*added, parse_conditions(texts, state.selections, selection)]
    left = tuple(each for each in parts if each is not None)
    if not left:
        raise refusal(refusals.DROPPED)
    return And(left)
