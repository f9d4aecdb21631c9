"""Prometheus queries that compare a metric with numbers, as filter sets.

A notification is a *sample* of one metric, or a *row* of several with the same labels; see
docs/dialects.md. The filters match if the query has a result for the sample, or for the row's
labels. Labels are text in UTF-8. A label that is not text differs from every text. A NaN value
equals nothing and differs from every number. Queries that need more than one sample are refused.

Source: Prometheus 3's documentation, Querying: basics, operators; Configuration: alerting and
recording rules.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedInput, v_args

from contrada.errors import InvalidFilterError, LimitError, RefusedRuleError
from contrada.integrations.dialects import dialect_grammar
from contrada.integrations.dialects.yaml_documents import Document, rules_of_documents
from contrada.model.algebra import sets
from contrada.model.algebra.expression import MIRRORED, And, Formula, Member, Or, negation
from contrada.model.algebra.filter import FilterSet, filter_set
from contrada.model.algebra.value_set import ABSENT, NOTHING, ValueSet, union
from contrada.model.domains.values import INT_MAX
from contrada.model.languages import characters, regex_operator, regex_syntax
from contrada.model.languages.regex_syntax import repeats_in
from contrada.model.rule import RefusedRule, Rule, read_or_refuse, require_name, require_text

DIALECT: Final = "prometheus"

REGULAR_EXPRESSION: Final = "a regular expression that is not linear"

NAME: Final = "__name__"
"""The attribute of a sample with the metric's name, as in Prometheus."""

VALUE: Final = "value"
"""The attribute of a sample with its value."""

QUERY_CHARACTERS_MAX: Final = 100_000
"""Characters of a Prometheus query. Beyond it: the rule is refused."""

QUERY_NESTING_MAX: Final = 50
"""Levels of parentheses in a Prometheus query. Beyond it: the rule is refused."""

QUERY_COUNTS_MAX: Final = 20_000
"""Sum of the counts `{…}` in the regular expressions of a Prometheus query. Each makes its
automaton larger. Beyond it: the rule is refused."""

NOT_A_QUERY: Final = "not a comparison of metrics with numbers"
NO_COMPARISON: Final = "a metric that is compared with nothing"
SEVERAL_METRICS: Final = "several metrics in one condition"
NAME_TWICE: Final = "a metric named twice"
NAMELESS: Final = "a metric without a name"
ANY_SERIES: Final = "no label that must not be empty"
STRING: Final = "a string that is no text"
NUMBER: Final = "a number in an unusual form"
LABEL: Final = "a label that no attribute can be called"

_refused: Final = partial(RefusedRuleError, DIALECT)


class Selected(NamedTuple):
    """The series of a selector: the metric's name and the values of its labels."""

    metric: str | None
    labels: tuple[Member, ...]


class Read(NamedTuple):
    """A condition, and the metrics of its comparisons; None is one without name."""

    condition: Formula
    metrics: tuple[str | None, ...]


def filters(query: str, *, rows: bool = False) -> FilterSet:
    """Returns the filters for the samples, or with `rows` the rows, that give a query a result.

    Cost: linear, plus the filters (see `model.algebra.filter.filter_set`). Raises RefusedRuleError
    with one of the reasons above, and LimitError.
    """
    if len(require_text(DIALECT, query)) > QUERY_CHARACTERS_MAX:
        raise LimitError("QUERY_CHARACTERS_MAX", QUERY_CHARACTERS_MAX, len(query))
    tokens = [match[0] for match in _TOKENS.finditer(query)]
    dialect_grammar.check_nesting(tokens, "QUERY_NESTING_MAX", QUERY_NESTING_MAX)
    if sum(map(repeats_in, tokens)) > QUERY_COUNTS_MAX:
        raise LimitError("QUERY_COUNTS_MAX", QUERY_COUNTS_MAX)
    try:
        read: Read = dialect_grammar.parse_text(_reader(rows), query)
    except UnexpectedInput as error:
        raise _unreadable(query, dialect_grammar.end_of(query, error)) from None
    several = len(read.metrics) > 1 and (None in read.metrics or len(set(read.metrics)) > 1)
    if several and not rows:
        raise _refused(SEVERAL_METRICS, query)
    return filter_set(read.condition)


@v_args(inline=True)
class _QueryReader(Transformer[Token, Any]):
    """Builds conditions, bottom up, while lark parses. `rows`: for rows, else for samples."""

    def __init__(self, rows: bool) -> None:
        super().__init__()
        self._rows = rows

    def alternatives(self, *parts: Read) -> Read:
        conditions = tuple(part.condition for part in parts)
        return Read(Or(conditions), tuple(m for part in parts for m in part.metrics))

    def joined(self, first: Read, *others: Any) -> Read:
        """Joins operands of `and` and `unless`, from left to right."""
        words, parts = others[::2], others[1::2]
        held = (
            negation(part.condition) if word.type == "UNLESS" else part.condition
            for word, part in zip(words, parts, strict=True)
        )
        metrics = tuple(metric for part in (first, *parts) for metric in part.metrics)
        return Read(And((first.condition, *held)), metrics)

    def comparison(self, *parts: Any) -> Read:
        """Returns a vector with numbers on both sides; all comparisons must hold."""
        at = 2 if isinstance(parts[2], Selected) else 0
        selected: Selected = parts[at]
        held = [_compare(MIRRORED[parts[1].replace("==", "=")], parts[0])] if at else []
        for how, number in zip(parts[at + 1 :: 2], parts[at + 2 :: 2], strict=True):
            held.append(_compare(how.replace("==", "="), number))
        labels = {each.name for each in selected.labels}
        name = selected.metric if self._rows else VALUE
        if name is None or (self._rows and NAME in labels):
            raise _refused(NAMELESS)
        if name in labels:
            raise _refused(LABEL, name)
        name = label_of(name)
        values = tuple(Member(name, each) for each in held)
        metric: tuple[Member, ...] = ()
        if not self._rows and selected.metric is not None:
            metric = (Member(NAME, sets.eq(selected.metric)),)
        return Read(And((*metric, *values, *selected.labels)), (selected.metric,))

    def calculated(self, left: float, sign: Token, right: float) -> float:
        """Returns the double that Prometheus calculates from constants, where Python raises: the
        quotient by 0 is infinite, the remainder by 0 or of infinity is NaN, a power overflows.
        """
        try:
            return _OPERATIONS[sign](left, right)
        except (OverflowError, ValueError, ZeroDivisionError):
            is_odd_power = sign == "^" and right % 2 == 1
            if sign == "%" or (sign == "/" and (not left or left != left)):
                return math.nan
            if sign == "^" and left < 0 and right % 1:
                return math.nan
            is_negative = math.copysign(1, left) < 0 and (sign == "/" or is_odd_power)
            is_negative ^= sign == "/" and math.copysign(1, right) < 0
            return -math.inf if is_negative else math.inf

    def signed(self, sign: Token, value: float) -> float:
        return -value if sign == "-" else value

    def number(self, token: Token) -> float:
        """Returns the double that Prometheus reads; refuses unusual forms, and octal digits."""
        digits = token.lower()
        value = math.inf
        if hexadecimal := _HEXADECIMAL.fullmatch(digits):
            whole = int(hexadecimal[1].replace("_", ""), 16)
            value = float(whole) if whole <= INT_MAX else math.inf
        elif digits == "nan" or (_DECIMAL.fullmatch(digits) and not _OCTAL.fullmatch(digits)):
            value = float(digits.replace("_", ""))
        if value == math.inf and digits != "inf":
            raise _refused(NUMBER, str(token))
        return value

    def duration(self, token: Token) -> float:
        parts = _DURATION.findall(token)
        milliseconds = sum(int(count) * _MILLISECONDS[unit] for count, unit in parts)
        sizes = [_MILLISECONDS[unit] for _, unit in parts]
        if milliseconds > DURATION_MS_MAX or sizes != sorted({*sizes}, reverse=True):
            raise _refused(NUMBER, str(token))
        return milliseconds / 1_000

    def selector(self, *parts: Any) -> Selected:
        """Returns the metric and the matchers; the name may be before or among them."""
        names = [str(each) for each in parts if isinstance(each, str)]
        labels = tuple(each for each in parts if isinstance(each, Member))
        if len(names) > 1 or (names and any(each.name == NAME for each in labels)):
            raise _refused(NAME_TWICE, " ".join(names))
        if not names and all(each.values.contains("") for each in labels):
            raise _refused(ANY_SERIES)
        return Selected(names[0] if names else None, labels)

    def metric(self, name: Token) -> str:
        return text_of(name)

    def matcher(self, label: Token, how: Token, constant: Token) -> Member | str:
        name = text_of(label) if label.type == "STRING" else str(label)
        text = text_of(constant)
        if name == NAME and how == "=" and text:
            return text
        return Member(label_of(name), label_values(how, text))


@cache
def _reader(rows: bool) -> Lark:
    return dialect_grammar.parser_of(__file__, "query.lark", _QueryReader(rows), start="query")


# --- labels -------------------------------------------------------------------------------------

_ANY: Final = regex_syntax.Chars(characters.complement(()))
_ANYTHING: Final = regex_syntax.Repeat(_ANY, 0, None)
_SOMETHING: Final = regex_syntax.Repeat(_ANY, 1, None)


def label_values(how: str, text: str) -> ValueSet:
    """Returns the values, or the absence, that a matcher accepts. Raises RefusedRuleError."""
    accepted = _matched_texts(text) if how.endswith("~") else sets.eq(text)
    if accepted.contains(""):
        accepted |= ABSENT
    return ~accepted if how.startswith("!") else accepted


def _matched_texts(pattern: str) -> ValueSet:
    """Returns the texts that a regular expression matches as a whole."""
    try:
        tree = regex_syntax.read(f"(?s){pattern}")
        if tree == _SOMETHING:
            return sets.ALL_TEXT - sets.eq("")
        # An expression that finds exactly the texts that the tree matches as a whole.
        whole = _bound(_bound(tree, regex_syntax.AT_END), regex_syntax.AT_START)
        plain = regex_operator.plain_forms(whole)
        if plain is None:
            return sets.matches(f"\\A(?s:{pattern})\\z")
    except InvalidFilterError as error:
        raise RefusedRuleError(DIALECT, REGULAR_EXPRESSION, pattern, error.reason) from None
    return union(map(sets.of_plain, plain))


def _bound(tree: regex_syntax.Tree, where: int) -> regex_syntax.Tree:
    """Adds a boundary at one end of a tree; any text at this end needs none."""
    if isinstance(tree, regex_syntax.Alternation):
        return regex_syntax.Alternation(tuple(_bound(part, where) for part in tree.parts))
    step = 1 if where == regex_syntax.AT_START else -1
    parts = (tree.parts if isinstance(tree, regex_syntax.Sequence) else (tree,))[::step]
    if parts[:1] == (_ANYTHING,):
        parts = parts[1:]
    elif parts[:1] == (regex_syntax.Look(where),):
        return _bound(regex_syntax.Sequence(parts[1:][::step]), where)
    elif parts and isinstance(parts[0], regex_syntax.Alternation):
        parts = (_bound(parts[0], where), *parts[1:])
    else:
        parts = (regex_syntax.Look(where), *parts)
    return regex_syntax.Sequence(parts[::step])


# --- values -------------------------------------------------------------------------------------

_ALL_NUMBERS: Final = sets.le(math.inf) | sets.eq(math.nan)


def _compare(how: str, value: float) -> ValueSet:
    """Returns the values of a metric; nothing compares with NaN, and everything differs from it."""
    if value != value:
        return _ALL_NUMBERS if how == "!=" else NOTHING
    return sets.OPERATORS[how](value)


_OPERATIONS: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": math.fmod,
    "^": math.pow,
}

_DURATION: Final = re.compile(r"([0-9]+)(ms|[ywdhms])")
_MILLISECONDS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
    "y": 365 * 86_400_000,
}
DURATION_MS_MAX: Final = INT_MAX // 1_000_000
"""Milliseconds of a duration in a Prometheus query. Beyond it: the rule is refused."""

_DIGITS: Final = "[0-9]+(?:_[0-9]+)*"
_HEXADECIMAL: Final = re.compile("0x((?:_?[0-9a-f])+)")
_OCTAL: Final = re.compile("0[0-9_]+")
_DECIMAL: Final = re.compile(rf"(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:e[+-]?[0-9]+)?")


def label_of(name: str) -> str:
    """Returns the attribute of a label. Raises RefusedRuleError if none can have its name."""
    return require_name(DIALECT, LABEL, name)


def text_of(token: str) -> str:
    """Returns the text of a string, with the escapes of `Go`; between backticks it has none."""
    body = token[1:-1]
    try:
        if token[0] == "`":
            body.encode()
            return body
        return dialect_grammar.unescape(body)
    except ValueError:  # also of its encoding
        raise _refused(STRING, body) from None


# --- refusals -----------------------------------------------------------------------------------

_ARITHMETIC: Final = "arithmetic"
_BY_LABELS: Final = "matching by labels"
_CALCULATES: Final = re.compile(r"[-+*/%^][\s(]*\Z")
_BEFORE: Final = re.compile(r"\b(?:on|ignoring|group_\w+)\s*\Z", re.IGNORECASE)
_REASONS: Final = (
    (re.compile(r"\s*[-+*/%^]|\s*atan2\b", re.IGNORECASE), _ARITHMETIC),
    (re.compile(r"\s*\["), "a range of time"),
    (re.compile(r"\s*(?:offset\b|@)", re.IGNORECASE), "another time"),
    (re.compile(r"\s*(?:on|ignoring|group_left|group_right)\b", re.IGNORECASE), _BY_LABELS),
    (re.compile(r"\s*bool\b", re.IGNORECASE), "a comparison whose result is 0 or 1"),
    (re.compile(r"\s*(?:\(|by\b|without\b)", re.IGNORECASE), "a function or an aggregation"),
    (re.compile(r"\s*[a-zA-Z_:{(]"), "a comparison of two metrics"),
)


def _unreadable(query: str, at: int) -> RefusedRuleError:
    rest = query[at:]
    if _CALCULATES.search(query[max(0, at - 20) : at]):
        return _refused(_ARITHMETIC, rest, f"character {at + 1}")
    if _BEFORE.search(query[max(0, at - 20) : at]):
        return _refused(_BY_LABELS, rest, f"character {at + 1}")
    if not rest.strip() or rest.startswith(")"):
        return _refused(NO_COMPARISON if query.strip() else NOT_A_QUERY, query)
    reason = dialect_grammar.reason_for(rest, _REASONS, NOT_A_QUERY)
    return _refused(reason, rest, f"character {at + 1}")


_TOKENS: Final = re.compile(
    r""""(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|`[^`]*(?:`|\Z)|#[^\n]*|[()]""",
    re.DOTALL,
)
"""Whole strings and comments, and the parentheses around them."""

NO_RULES: Final = "no rule in the file"
NO_ABOUT: Final[Mapping[str, str]] = MappingProxyType({})

_QUERIES: Final = ("expr", "query")
_NAMES: Final = ("alert", "record", "name")


def read_rules(text: str, *, rows: bool = False) -> Iterator[Rule | RefusedRule]:
    """Returns the rules of a YAML file: every map with a query in `expr` or `query`.

    `alert`, `record` or `name` is the name of a rule, the annotation `summary` its title, the label
    `severity` its level. `for` is ignored: filters match whenever the query has a result. For
    `rows` see `filters`.
    """

    def rules_in(document: Document) -> Iterator[Rule | RefusedRule]:
        for name, query, about in _queries(document):
            yield read_or_refuse(name, partial(read, query, name, rows=rows, about=about))

    return rules_of_documents(DIALECT, text, rules_in, NO_RULES)


def read(
    query: Document, name: str = "", *, rows: bool = False, about: Mapping[str, str] = NO_ABOUT
) -> Rule:
    """Returns the rule of a query; see `filters`. Raises RefusedRuleError, LimitError."""
    return Rule(name, filters(require_text(DIALECT, query), rows=rows), about=about)


def _queries(document: Document) -> Iterator[tuple[str, Document, Mapping[str, str]]]:
    if isinstance(document, list):
        for each in document:
            yield from _queries(each)
    elif isinstance(document, dict):
        key = next((key for key in _QUERIES if key in document), None)
        if key is not None:
            names = (document[key] for key in _NAMES if key in document)
            yield str(next(names, "")), document[key], dict(_about(document))
            return
        for each in document.values():
            yield from _queries(each)


def _about(document: dict[Any, Any]) -> Iterator[tuple[str, str]]:
    """Yields the summary of an alert as its title, and its severity as its level."""
    for key, place, name in (("title", "annotations", "summary"), ("level", "labels", "severity")):
        held = document.get(place)
        if isinstance(held, dict) and isinstance(held.get(name), str):
            yield key, held[name]
