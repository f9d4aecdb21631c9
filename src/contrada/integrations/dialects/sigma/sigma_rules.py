"""`read_rules`: Sigma rules from YAML, and the grammar of their conditions.

A rule's selections are maps (all fields must match) or lists of maps (one map must match); its
condition joins them. Together with the constraints of the log source this is a filter set without a
residue. docs/dialects.md lists the rules that are refused.

A condition joins selections by their names. `1 of` (also `any of`) and `all of` denote several:
those with a name that matches a pattern, or all with `them`, except names that begin with an
underscore.

Source: Sigma specification 2.1.0; Detection Rule License 1.1 (author and title accompany a rule
and its matches).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final

from lark import Lark, Token, UnexpectedInput
from lark.exceptions import VisitError
from lark.visitors import Transformer_NonRecursive, v_args

from contrada.errors import ContradaError, InvalidNameError, LimitError, RefusedRuleError
from contrada.integrations.dialects.dialect_grammar import check_nesting
from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.integrations.dialects.sigma.log_sources import LogSource
from contrada.integrations.dialects.sigma.sigma_refusals import DIALECT, refusal, shorten
from contrada.integrations.dialects.sigma.sigma_values import (
    Placeholders,
    Spelling,
    accepted_values,
)
from contrada.integrations.dialects.yaml_documents import Document, documents
from contrada.model.algebra.expression import And, Formula, Member, Or, negation
from contrada.model.algebra.filter import FilterSet, filter_set
from contrada.model.algebra.value_set import union
from contrada.model.domains.values import check_user_name
from contrada.model.languages.wildcard import Segments
from contrada.model.rule import RefusedRule, Rule, read_or_refuse

SIGMA_CONDITION_CHARACTERS_MAX: Final = 10_000
"""Characters of the conditions of a Sigma rule. Beyond it: the rule is refused."""

SIGMA_PARENTHESES_MAX: Final = 50
"""Levels of parentheses in the condition of a Sigma rule. Beyond it: the rule is refused."""

NAMES_LOOKED_AT_MAX: Final = 200_000
"""Names of a Sigma rule's selections, times its patterns. Beyond it: the rule is refused."""

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


def parse_conditions(
    texts: Collection[str], names: Mapping[str, object], selection: Callable[[str], Formula]
) -> Formula:
    """Returns the union of some conditions; `selection` reads one of the selections' names.

    Raises RefusedRuleError, and LimitError.
    """
    size = sum(map(len, texts))
    if size > SIGMA_CONDITION_CHARACTERS_MAX:
        raise LimitError("SIGMA_CONDITION_CHARACTERS_MAX", SIGMA_CONDITION_CHARACTERS_MAX, size)
    reader = _ConditionReader(names, selection)
    parsed: list[Formula] = []
    for text in texts:
        check_nesting(text, "SIGMA_PARENTHESES_MAX", SIGMA_PARENTHESES_MAX)
        try:
            parsed.append(reader.transform(_grammar().parse(text)))
        except UnexpectedInput as error:
            reason = refusals.AGGREGATION if "|" in text else refusals.CONDITION
            raise refusal(reason, text, f"condition, column {error.column}") from None
        except VisitError as error:
            raise error.orig_exc from None
    return Or(tuple(parsed))


@cache
def _grammar() -> Lark:
    return Lark.open(
        "condition.lark", rel_to=__file__, parser="lalr", lexer="basic", maybe_placeholders=False
    )


@v_args(inline=True)
class _ConditionReader(Transformer_NonRecursive[Token, Formula]):
    """Builds conditions from the parse tree. Repeated parts become the same object."""

    def __init__(self, names: Mapping[str, object], selection: Callable[[str], Formula]) -> None:
        super().__init__()
        self._names = names
        self._selection = selection
        self._looked_at = 0
        self._named: dict[str, list[str]] = {}
        """The matching names of each pattern."""
        self._joined: dict[tuple[type[And | Or], tuple[int, ...]], Formula] = {}
        self._negated: dict[int, tuple[Formula, Formula]] = {}
        """By id, a condition and its negation. It keeps the condition alive, so that its id
        stays valid."""

    def some(self, *parts: Formula) -> Formula:
        return self._join(Or, parts)

    def every(self, *parts: Formula) -> Formula:
        return self._join(And, parts)

    def not_(self, *parts: Token | Formula) -> Formula:
        *words, part = parts
        assert not isinstance(part, Token), "words come before what they negate"
        if not len(words) & 1:
            return part
        if id(part) not in self._negated:
            self._negated[id(part)] = (part, negation(part))
        return self._negated[id(part)][1]

    def one(self, name: Token) -> Formula:
        if name not in self._names:
            raise refusal(refusals.NO_SELECTION, str(name), "condition")
        return self._selection(str(name))

    def several(self, quantity: Token, pattern: Token) -> Formula:
        if pattern not in self._named:
            self._looked_at += len(self._names)
            if self._looked_at > NAMES_LOOKED_AT_MAX:
                raise LimitError("NAMES_LOOKED_AT_MAX", NAMES_LOOKED_AT_MAX)
            shape = "*" if pattern.lower() == "them" else str(pattern)
            texts = Segments(tuple(shape.encode(errors="surrogatepass").split(b"*")))
            listed = [name for name in self._names if name[:1] != "_"]
            names = [name for name in listed if texts.hold(name.encode(errors="surrogatepass"))]
            if not names:
                raise refusal(refusals.NO_SELECTION, pattern, "condition")
            self._named[pattern] = names
        parts = tuple(self._selection(name) for name in self._named[pattern])
        return self._join(And if quantity.lower() == "all" else Or, parts)

    def _join(self, kind: type[And | Or], parts: tuple[Formula, ...]) -> Formula:
        form = (kind, tuple(map(id, parts)))
        if form not in self._joined:
            self._joined[form] = kind(parts)
        return self._joined[form]
