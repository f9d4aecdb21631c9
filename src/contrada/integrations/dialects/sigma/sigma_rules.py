"""`read_rules`: Sigma rules from YAML.

A rule's selections are maps (all fields must match) or lists of maps (one map must match); its
condition joins them (`sigma_conditions`). Pipelines change them, and add the constraints of the log
source (`sigma_pipelines`). Comparisons of fields and parts of times are a residue
(`sigma_residue`); the rest is a filter set. docs/dialects.md lists the rules that are refused.

Source: Sigma specification 2.1.0; Detection Rule License 1.1 (author and title accompany a rule
and its matches).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from contrada.errors import ContradaError, RefusedRuleError
from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.integrations.dialects.sigma.log_sources import LogSource
from contrada.integrations.dialects.sigma.sigma_correlations import read_correlation, related_names
from contrada.integrations.dialects.sigma.sigma_items import (
    RuleConditions,
    condition_of,
    read_state,
)
from contrada.integrations.dialects.sigma.sigma_pipelines import (
    WINDOWS,
    ProcessingPipeline,
    apply_pipelines,
)
from contrada.integrations.dialects.sigma.sigma_refusals import DIALECT, refusal, shorten
from contrada.integrations.dialects.sigma.sigma_residue import RuleResidue
from contrada.integrations.dialects.sigma.sigma_values import Placeholders, Spelling
from contrada.integrations.dialects.yaml_documents import Document, documents, only_document
from contrada.model.algebra.filter import FilterSet
from contrada.model.rule import CorrelationRule, RefusedRule, Rule, read_or_refuse

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
    text: str,
    placeholders: Placeholders = NO_PLACEHOLDERS,
    keywords: Sequence[str] = (),
    pipelines: Sequence[ProcessingPipeline] = (WINDOWS,),
) -> Iterator[Rule | RefusedRule]:
    """Yields the rules of a YAML text, in order; see `model.rule.ReadRules`.

    `placeholders` are the values for `expand`. A keyword is a part of the text of one of the
    attributes `keywords`; without any such attribute, rules with keywords are refused. `pipelines`
    replace the one of Windows. Cost: about a millisecond for a rule of usual size.
    """
    for each in read_all(text, placeholders, keywords, pipelines):
        if isinstance(each, CorrelationRule):
            yield RefusedRule(each.name, refusal(refusals.CORRELATED))
        else:
            yield each


def read_all(
    text: str,
    placeholders: Placeholders = NO_PLACEHOLDERS,
    keywords: Sequence[str] = (),
    pipelines: Sequence[ProcessingPipeline] = (WINDOWS,),
) -> Iterator[Rule | CorrelationRule | RefusedRule]:
    """Yields rules and correlations, otherwise as `read_rules`.

    A rule that a correlation refers to, by its name or id in the same text, is none of its own,
    unless the correlation has `generate`. A text with correlations is held as a whole.
    """
    read = partial(_rule, placeholders=placeholders, keywords=keywords, pipelines=pipelines)
    try:
        found: Iterable[Document | RefusedRuleError] = documents(DIALECT, text)
        related = _RelatedRules(())
        if "correlation" in text:
            found = [*found]
            related = _RelatedRules(found)
        for document in found:
            if isinstance(document, RefusedRuleError):
                yield RefusedRule("", document)
            elif document is None or related.has_consumed(document):
                continue
            elif is_correlation(document):
                correlation = partial(_correlation, document, related, read, pipelines)
                yield read_or_refuse(name_of(document), correlation)
            else:
                yield read_or_refuse(name_of(document), partial(read, document))
    except ContradaError as error:
        yield RefusedRule("", error)


class _RelatedRules:
    """The rules of a text by name and id, and those that correlations refer to."""

    def __init__(self, found: "Iterable[Document | RefusedRuleError]") -> None:
        self._known: dict[str, Document] = {}
        self._consumed: set[int] = set()
        rules = [each for each in found if isinstance(each, dict)]
        for rule in rules:
            self._known |= {
                key: rule for key in map(rule.get, ("id", "name")) if isinstance(key, str)
            }
        for rule in filter(is_correlation, rules):
            given = rule["correlation"]
            if isinstance(given, dict) and given.get("generate") is not True:
                named = given.get("rules")
                names = named if isinstance(named, list) else [named]
                asked = (self._known.get(each) for each in names if isinstance(each, str))
                self._consumed |= {id(each) for each in asked if not is_correlation(each)}

    def has_consumed(self, document: Document) -> bool:
        """Whether a correlation uses the rule, which is then none of its own."""
        return id(document) in self._consumed

    def named(self, name: str) -> dict[Any, Any]:
        """Returns the rule of a name or id. Raises RefusedRuleError for none, or a correlation."""
        found = self._known.get(name)
        if not isinstance(found, dict):
            raise refusal(refusals.NO_RELATED, name, "correlation.rules")
        if is_correlation(found):
            raise refusal(refusals.CHAIN, name, "correlation.rules")
        return found


def is_correlation(document: Document) -> bool:
    """Whether a document is a correlation of rules."""
    return isinstance(document, dict) and "correlation" in document


def _correlation(
    document: Any,
    related: _RelatedRules,
    read: Callable[[Any], Rule],
    pipelines: Sequence[ProcessingPipeline],
) -> CorrelationRule:
    given = {each: related.named(each) for each in related_names(document)}
    sources = [LogSource.of(each.get("logsource") or {}) for each in given.values()]
    filters = {each: read(rule).exact_filters(DIALECT) for each, rule in given.items()}
    found = read_correlation(document, filters, sources, pipelines)
    return CorrelationRule(name_of(document), *found, about(document))


def read(
    given: Document,
    placeholders: Placeholders = NO_PLACEHOLDERS,
    keywords: Sequence[str] = (),
    pipelines: Sequence[ProcessingPipeline] = (WINDOWS,),
) -> Rule:
    """Returns the rule of YAML with one, or of a map. Raises RefusedRuleError, and LimitError."""
    if isinstance(given, str):
        given = only_document(DIALECT, given, refusals.NO_RULE)
    return _rule(given, placeholders, keywords, pipelines)


def filters(
    given: Document,
    placeholders: Placeholders = NO_PLACEHOLDERS,
    pipelines: Sequence[ProcessingPipeline] = (WINDOWS,),
) -> FilterSet:
    """Returns the filters that equal a rule. Raises as `read`."""
    return read(given, placeholders, pipelines=pipelines).exact_filters(DIALECT)


def _rule(
    document: Any,
    placeholders: Placeholders,
    keywords: Sequence[str],
    pipelines: Sequence[ProcessingPipeline],
) -> Rule:
    if not isinstance(document, dict):
        raise refusal(refusals.NO_RULE, document)
    if is_correlation(document):
        raise refusal(refusals.CORRELATED, name_of(document))
    state = read_state(document, Spelling(placeholders))
    apply_pipelines(pipelines, state)
    residue = RuleResidue()
    condition = condition_of(state, RuleConditions(keywords, residue))
    found, text, holds = residue.split(condition)
    return Rule(name_of(document), found, text, holds, state.source_notes(), about(document))


def name_of(document: Document) -> str:
    """Returns the name of a rule: its id, else its title, else nothing."""
    if not isinstance(document, dict):
        return ""
    given = (document.get("id"), document.get("title"))
    names = (shorten(str(each)) for each in given if each and isinstance(each, str | int))
    return next(names, "")
