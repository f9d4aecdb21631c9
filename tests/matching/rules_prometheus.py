r"""Prometheus alerts that compare metrics with numbers, as filters; and their meaning.

The rules are those with a query of this form:

    query      = comparison { "and" comparison }
    comparison = selector operator number | "(" selector operator number ")"
    operator   = "==" | "!=" | "<" | "<=" | ">" | ">="
    selector   = metric [ "{" [ matcher { "," matcher } [ "," ] ] "}" ]
    matcher    = label ( "=" | "!=" | "=~" | "!~" ) string

and with patterns (after `=~` and `!~`, anchored at both ends) of alternatives, grouped or not, of
plain text with `.*` or `.+` at the ends. An absent label is the empty text.

A notification carries values of metrics by the metrics' names, and labels by theirs.
"""

import itertools
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import contrada as ct

_NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_MATCHER: Final = r'(?P<label>[a-zA-Z_]\w*)\s*(?P<how>=~|!~|!=|=)\s*"(?P<text>(?:[^"\\]|\\.)*)"'
_PLAIN_MATCHER: Final = re.sub(r"\?P<\w+>", "?:", _MATCHER)
_LABELS: Final = rf"\{{\s*(?:{_PLAIN_MATCHER}\s*(?:,\s*{_PLAIN_MATCHER}\s*)*,?\s*)?\}}"
_SELECTOR: Final = rf"(?P<metric>[a-zA-Z_:][\w:]*)\s*(?P<labels>{_LABELS})?"
_BARE: Final = rf"{_SELECTOR}\s*(?P<operator>==|!=|<=|>=|<|>)\s*(?P<number>{_NUMBER})"
COMPARISON: Final = re.compile(rf"\s*(?P<open>\()?\s*{_BARE}\s*(?(open)\))\s*")
_JOINT: Final = re.compile(r"\s*\band\b\s*")
_QUERY: Final = re.compile(r"^( *)(?:- )?query: *(.*)$")

_NUMBERS: Final[dict[str, tuple[Callable[[Any], ct.ValueSet], Callable[[Any, Any], Any]]]] = {
    "==": (ct.ops.eq, operator.eq),
    "!=": (ct.ops.ne, operator.ne),
    "<": (ct.ops.lt, operator.lt),
    "<=": (ct.ops.le, operator.le),
    ">": (ct.ops.gt, operator.gt),
    ">=": (ct.ops.ge, operator.ge),
}


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on a label."""

    label: str
    how: str
    text: str

    def value_set(self) -> ct.ValueSet:
        """The values of the label, absence among them where the empty text would do."""
        accepted = texts_of(self.text) if self.how[-1] == "~" else ct.ops.eq(self.text)
        if accepted.contains(""):
            accepted = accepted | ct.ops.absent()
        return ~accepted if self.how[0] == "!" else accepted

    def accepts(self, value: str | None) -> bool:
        """The same by Python's own regular expressions."""
        given = "" if value is None else value
        pattern = self.text if self.how[-1] == "~" else re.escape(self.text)
        return (re.fullmatch(pattern, given) is not None) is (self.how[0] == "=")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric, its labels, and the number it is compared with."""

    metric: str
    matchers: tuple[Matcher, ...]
    operator: str
    number: float


Rule = tuple[Comparison, ...]
"""Comparisons that must all hold."""


# --- reading ------------------------------------------------------------------------------------


def rules(path: Path) -> list[Rule]:
    """The rules of a file that are of this form, in its order."""
    return [rule for query in queries(path) if (rule := parsed(query)) is not None]


def queries(path: Path) -> Iterator[str]:
    """The queries of a file of alerts in YAML: plain, quoted, or in a block that is indented."""
    lines = path.read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        found = _QUERY.match(line)
        if found is None:
            continue
        indent, text = len(found[1]), found[2].strip()
        if text[:1] in "|>":
            yield " ".join(each.strip() for each in block(lines[number + 1 :], indent))
        else:
            yield unquoted(text)


def block(lines: Iterable[str], indent: int) -> Iterator[str]:
    """The next lines with more indentation than their key."""
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            return
        yield line


def unquoted(text: str) -> str:
    """A scalar of YAML in one line. One that continues in the next line is unchanged."""
    if text.startswith("'") and text.endswith("'"):
        return text[1:-1].replace("''", "'")
    if text.startswith('"') and text.endswith('"'):
        return str(json.loads(text))
    return text


def parsed(query: str) -> Rule | None:
    """The comparisons of a query; None where it is of another form."""
    comparisons: list[Comparison] = []
    at = 0
    while (found := COMPARISON.match(query, at)) is not None:
        comparisons.append(comparison(found))
        at = found.end()
        if at == len(query):
            texts = (each for part in comparisons for each in part.matchers if each.how[-1] == "~")
            return tuple(comparisons) if all(is_plain(each.text) for each in texts) else None
        joint = _JOINT.match(query, at)
        if joint is None:
            return None
        at = joint.end()
    return None


def comparison(found: re.Match[str]) -> Comparison:
    """The meaning of one comparison."""
    matchers = (
        Matcher(each["label"], each["how"], json.loads(f'"{each["text"]}"'))
        for each in re.finditer(_MATCHER, found["labels"] or "")
    )
    return Comparison(found["metric"], tuple(matchers), found["operator"], float(found["number"]))


# --- patterns -----------------------------------------------------------------------------------

_WILD: Final = (".*", ".+")
_ENDS: Final = re.compile(r"(\.[*+])?(.*?)(\.[*+])?", re.DOTALL)


def alternatives(pattern: str) -> list[str]:
    """A pattern with its groups multiplied out: `a(b|c)` is `ab`, `ac`."""
    found = re.fullmatch(r"(.*?)\(([^()]*)\)(.*)", pattern)
    if found is None:
        return pattern.split("|")
    before, inside, after = found.groups()
    return [f"{before}{each}{after}" for each in inside.split("|")]


def core(alternative: str) -> tuple[str, str, str]:
    """The wildcard before, the text, the wildcard after."""
    found = _ENDS.fullmatch(alternative.removeprefix("^").removesuffix("$"))
    assert found is not None
    return found[1] or "", found[2], found[3] or ""


def is_plain(pattern: str) -> bool:
    """Whether this module understands a pattern."""
    return all(re.fullmatch(r"[\w /:-]*", core(each)[1]) for each in alternatives(pattern))


def texts_of(pattern: str) -> ct.ValueSet:
    """The texts that a pattern accepts."""
    accepted = ct.ValueSet(())
    for each in alternatives(pattern):
        accepted = accepted | texts_of_one(*core(each))
    return accepted


def texts_of_one(before: str, text: str, after: str) -> ct.ValueSet:
    """The texts of one alternative. `.+` asks for one character more than `.*`."""
    if before and after:
        assert (before, after) == _WILD[:1] * 2
        return ct.ops.contains(text)
    if not before and not after:
        return ct.ops.eq(text)
    accepted = ct.ops.suffix(text) if before else ct.ops.prefix(text)
    return accepted - ct.ops.eq(text) if ".+" in (before, after) else accepted


# --- meanings -----------------------------------------------------------------------------------


def filter_of(rule: Rule, series: Mapping[str, str]) -> ct.Filter:
    """The filter of a rule, each metric called by the name of its series."""
    made = ct.Filter({})
    for each in rule:
        made = made & ct.Filter({series[each.metric]: _NUMBERS[each.operator][0](each.number)})
        for matcher in each.matchers:
            made = made & ct.Filter({matcher.label: matcher.value_set()})
    return made


def holds(
    rule: Rule,
    series: Mapping[str, str],
    values: Mapping[str, npt.NDArray[np.float64]],
    labels: Mapping[str, list[str | None]],
) -> npt.NDArray[np.bool_]:
    """The notifications in which a rule holds, computed without any filter.

    The arguments are a column of values per series, NaN for none, and one per label.
    """
    result: npt.NDArray[np.bool_] = np.ones(len(next(iter(values.values()))), dtype=bool)
    for each in rule:
        column = values[series[each.metric]]
        result &= _NUMBERS[each.operator][1](column, each.number) & ~np.isnan(column)
        for matcher in each.matchers:
            given = labels[matcher.label]
            known = {value: matcher.accepts(value) for value in set(given)}
            result &= np.fromiter((known[value] for value in given), dtype=bool)
    return result


def label_values(of: Iterable[Rule]) -> dict[str, list[str | None]]:
    """Values worth trying for each label that rules ask for: those named, others, and none."""
    named: dict[str, set[str]] = {}
    for each in itertools.chain.from_iterable(of):
        for matcher in each.matchers:
            is_pattern = matcher.how[-1] == "~"
            texts = map("".join, map(core, alternatives(matcher.text))) if is_pattern else ()
            values = {matcher.text} if not is_pattern else {t.replace(".", "") for t in texts}
            named.setdefault(matcher.label, {"", "other"}).update(values)
    return {
        label: [None, *sorted(values | {f"{each}more" for each in values})]
        for label, values in sorted(named.items())
    }


def plain(value: float) -> float | int:
    """A whole number as an integer, so that both kinds of numbers occur."""
    return int(value) if math.isfinite(value) and value.is_integer() else value
