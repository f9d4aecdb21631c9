"""Sigma rules from YAML.

A rule's selections are maps (all fields must match) or lists of maps (one map must match); its
condition joins them. Together with the constraints of the log source this is a filter set without a
residue. docs/dialects.md lists the rules that are refused.

Source: Sigma specification 2.1.0; Detection Rule License 1.1 (author and title accompany a rule
and its matches).
"""

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from contrada.errors import ContradaError, InvalidNameError, RefusedRuleError
from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.integrations.dialects.sigma.log_sources import LogSource
from contrada.integrations.dialects.sigma.sigma_condition import parse_conditions
from contrada.integrations.dialects.sigma.sigma_refusals import DIALECT, refusal, shorten
from contrada.integrations.dialects.sigma.sigma_values import (
    Placeholders,
    Spelling,
    accepted_values,
)
from contrada.integrations.dialects.yaml_documents import Document, documents
from contrada.model.algebra.expression import And, Formula, Member, Or
from contrada.model.algebra.filter import FilterSet, filter_set
from contrada.model.algebra.value_set import union
from contrada.model.domains.values import check_user_name
from contrada.model.rule import RefusedRule, Rule, read_or_refuse

ABOUT: Final = ("title", "author", "level", "tags", "license")
"""The keys that are kept."""


def about(document: Mapping[Any, Any]) -> dict[str, str | list[str]]:
    """Returns the texts and lists of texts of the description."""
    found: dict[str, str | list[str]] = {}
    for key in ABOUT:
        value = document.get(key)
        if isinstance(value, list):
            found[key] = [str(each) for each in value if isinstance(each, str | int | float)]
        elif isinstance(value, str | int | float):
            found[key] = str(value)
    return found


NO_PLACEHOLDERS: Final[Placeholders] = MappingProxyType({})


def read_rules(
    text: str, placeholders: Placeholders = NO_PLACEHOLDERS
) -> Iterator[Rule | RefusedRule]:
    """Yields the rules of a YAML text, in order; see `model.rule.ReadRules`.

    `placeholders` are the values for `expand`. Cost: about a millisecond for a rule of usual size.
    """
    try:
        for document in documents(DIALECT, text):
            if isinstance(document, RefusedRuleError):
                yield RefusedRule("", document)
            elif document is not None:
                yield read_or_refuse(name_of(document), partial(_rule, document, placeholders))
    except ContradaError as error:
        yield RefusedRule("", error)


def read(given: Document, placeholders: Placeholders = NO_PLACEHOLDERS) -> Rule:
    """Returns the rule of YAML with one, or of a map. Raises RefusedRuleError, and LimitError."""
    if not isinstance(given, str):
        return _rule(given, placeholders)
    found = [each for each in documents(DIALECT, given) if each is not None]
    for each in found:
        if isinstance(each, RefusedRuleError):
            raise each
    if len(found) != 1:
        raise refusal(refusals.NO_RULE, f"{len(found)} documents")
    return _rule(found[0], placeholders)


def filters(given: Document, placeholders: Placeholders = NO_PLACEHOLDERS) -> FilterSet:
    """Returns the filters that equal a rule. Raises as `read`."""
    return read(given, placeholders).exact_filters(DIALECT)


def _rule(document: Any, placeholders: Placeholders) -> Rule:
    if not isinstance(document, dict):
        raise refusal(refusals.NO_RULE, document)
    detection = document.get("detection")
    source = document.get("logsource") or {}
    if not isinstance(detection, dict) or not isinstance(source, dict):
        raise refusal(refusals.NO_RULE, name_of(document))
    log_source = LogSource.of(source)
    reader = _SelectionReader(detection, log_source, Spelling(placeholders))
    found = filter_set(And((log_source.constraints(), reader.condition())))
    return Rule(name_of(document), found, notes=log_source.notes(), about=about(document))


def name_of(document: Document) -> str:
    """Returns the name of a rule: its id, else its title, else nothing."""
    if not isinstance(document, dict):
        return ""
    given = (document.get("id"), document.get("title"))
    names = (shorten(str(each)) for each in given if each and isinstance(each, str | int))
    return next(names, "")


class _SelectionReader:
    """Reads the condition of one rule. Each selection is read at its first use, and once."""

    def __init__(self, detection: dict[Any, Any], source: LogSource, spelling: Spelling) -> None:
        self._given = {str(name): each for name, each in detection.items()}
        if len(self._given) < len(detection):
            raise refusal(refusals.SAME_SELECTION, [*detection])
        self._source = source
        self._spelling = spelling
        self._known: dict[int, Formula] = {}
        """The condition of each list and map, by id: aliases share them."""

    def condition(self) -> Formula:
        """Returns the condition without the log source; several conditions are alternatives."""
        if "timeframe" in self._given:
            raise refusal(refusals.AGGREGATION, self._given["timeframe"], "timeframe")
        given = self._given.get("condition")
        texts: list[str] = []
        for text in given if isinstance(given, list) and given else [given]:
            if not isinstance(text, str):
                raise refusal(refusals.NO_CONDITION, text)
            texts.append(text)
        names = {name: each for name, each in self._given.items() if name != "condition"}
        return parse_conditions(texts, names, lambda name: self._items(names[name], name))

    def _items(self, given: Document, place: str) -> Formula:
        if not isinstance(given, list | dict):
            raise refusal(refusals.KEYWORDS, given, place)
        if not given:
            raise refusal(refusals.EMPTY_SELECTION, given, place)
        known = self._known.get(id(given))
        if known is None:
            if isinstance(given, list):
                known = Or(tuple(self._items(each, place) for each in given))
            else:
                known = And(tuple(self._item(key, each, place) for key, each in given.items()))
            self._known[id(given)] = known
        return known

    def _item(self, key: object, given: Document, place: str) -> Formula:
        place = f"{place}.{key}"
        if not isinstance(key, str):
            raise refusal(refusals.NAME, key, place)
        field, *modifiers = key.split("|")
        if not field:
            raise refusal(refusals.KEYWORDS, given, place)
        values = given if isinstance(given, list) else [given]
        if not values:
            raise refusal(refusals.EMPTY_SELECTION, given, place)
        try:
            name = check_user_name(self._source.attribute(field))
        except InvalidNameError:
            raise refusal(refusals.NAME, field, place) from None
        changes = [each for each in modifiers if each != "all"]
        found = [accepted_values(value, changes, self._spelling, place) for value in values]
        if "all" in modifiers:
            return And(tuple(Member(name, each) for each in found))
        return Member(name, union(found))
