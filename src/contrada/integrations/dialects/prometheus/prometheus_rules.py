"""Files of Prometheus rules in YAML: every map with a query in `expr` or `query`.

`alert`, `record` or `name` is the name of a rule. The time for which a query must have a result
before an alert fires (`for`) is ignored: filters match whenever it has one.

Source: Prometheus 3's documentation, Configuration: alerting and recording rules.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from contrada.errors import ContradaError, RefusedRuleError
from contrada.integrations.dialects.prometheus.labels import DIALECT
from contrada.integrations.dialects.prometheus.promql import filters
from contrada.integrations.dialects.yaml_documents import Document, documents
from contrada.model.rule import RefusedRule, Rule, read_or_refuse, require_text

NO_RULES: Final = "no rule in the file"

_QUERIES: Final = ("expr", "query")
_NAMES: Final = ("alert", "record", "name")


def read_rules(text: str, *, rows: bool = False) -> Iterator[Rule | RefusedRule]:
    """Yields the rules of a YAML file, in order; see `model.rule.ReadRules`.

    With `rows` a notification holds several metrics; see `promql.filters`.
    """
    found = 0
    try:
        for document in documents(DIALECT, text):
            if isinstance(document, RefusedRuleError):
                found += 1
                yield RefusedRule("", document)
                continue
            for name, query in _queries(document):
                found += 1
                yield read_or_refuse(name, partial(read, query, name, rows=rows))
    except ContradaError as error:
        yield RefusedRule("", error)
        return
    if not found:
        yield RefusedRule("", RefusedRuleError(DIALECT, NO_RULES))


def read(query: Document, name: str = "", *, rows: bool = False) -> Rule:
    """Returns the rule of a query; see `promql.filters`. Raises RefusedRuleError, LimitError."""
    return Rule(name, filters(require_text(DIALECT, query), rows=rows))


def _queries(document: Document) -> Iterator[tuple[str, Document]]:
    """Yields the names and queries of a document, in its order."""
    if isinstance(document, list):
        for each in document:
            yield from _queries(each)
    elif isinstance(document, dict):
        key = next((key for key in _QUERIES if key in document), None)
        if key is not None:
            names = (document[key] for key in _NAMES if key in document)
            yield str(next(names, "")), document[key]
            return
        for each in document.values():
            yield from _queries(each)
