"""`MatchExplanation`: the constraints that a notification satisfies, and the cause of each failure.

The sets of a filter are compared with the notification's values one by one, so the answer is that
of `Filter.matches`. A cause is the nearest explanation, tried in this order: an absent attribute
and similar names, a value of another domain and its conversion, a near text, the nearest bound.
"""

import difflib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from contrada.errors import InvalidValueError, UnknownOperatorError, shortened
from contrada.model.algebra import notation
from contrada.model.algebra.filter import Filter, Selects, holds_one, selection
from contrada.model.algebra.html_display import html_table
from contrada.model.algebra.notification import Notification
from contrada.model.algebra.value_set import ValueSet, of_cuts
from contrada.model.domains import line, values
from contrada.model.domains.values import (
    ABSENT_KEY,
    BOOL,
    NAN,
    NULL,
    NUMBER,
    TEXT,
    TIME,
    Key,
    iso_time,
    key_of,
    value_of,
)

SIMILAR_MAX: Final = 3
"""Similar names that are suggested, without those that differ by case. Beyond it: none."""

SIMILARITY: Final = 0.75
"""Least `difflib` ratio of similar names: one letter of four, or two of eight, may differ."""

TEXTS_COMPARED_MAX: Final = 64
"""Texts of a set that are compared with a value. Beyond it: no similar text is named."""

COMPARED_CHARACTERS_MAX: Final = 1_000
"""Characters of a text that is compared with those of a set, at a cost of up to their square.
Beyond it: no similar text is named."""

NAMES_COMPARED_MAX: Final = 20_000
"""Attributes of a notification, times the constraints of an explanation. Beyond it: no similar
names are given."""

SHOWN_MAX: Final = 120
"""Characters of a value or a constraint in a cause. Beyond it: they are cut."""

DOMAIN_NOUNS: Final = ("no value", "null", "a truth value", "NaN", "a number", "a time", "a text")
"""The domains in a sentence, by their tags."""

_TRUTH: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ConstraintResult:
    """The constraint on one attribute, as text, and whether the notification satisfies it.

    `cause` is "" if it `holds`, else a sentence with the value and the constraint.
    """

    name: str
    constraint: str
    holds: bool
    cause: str = ""

    def __str__(self) -> str:
        return f"holds: {self.constraint}" if self.holds else f"fails: {self.cause}"


@dataclass(frozen=True, slots=True)
class MatchExplanation:
    """Whether a notification matches, with the result of each constraint of the nearest filter.

    `filter` is the member of the union with the fewest failing constraints, the first of equal
    ones; None if the union has no member. `others` is the number of the other members.
    """

    matches: bool
    filter: Filter | None
    constraints: tuple[ConstraintResult, ...]
    others: int = 0

    def __bool__(self) -> bool:
        return self.matches

    def __str__(self) -> str:
        head = "matches" if self.matches else "does not match"
        shown = "nothing" if self.filter is None else _short(str(self.filter))
        others = f", the nearest of {self.others + 1} filters" if self.others else ""
        return "\n  ".join((f"{head}: {shown}{others}", *map(str, self.constraints)))

    def _repr_html_(self) -> str:
        rows = [
            (each.constraint, "holds" if each.holds else "fails", each.cause)
            for each in self.constraints
        ]
        return html_table(("constraint", "result", "cause"), rows, str(self).partition("\n")[0])


def explain_match(
    wanted: Selects, notification: Notification | Mapping[str, Any]
) -> MatchExplanation:
    """Returns the explanation of `matches`. An unregistered operator is the cause of a failure.

    Cost: one membership for each constraint, and the text of those of one filter.
    """
    if not isinstance(notification, Notification):
        notification = Notification(notification)
    members = selection(wanted).filters
    if not members:
        return MatchExplanation(False, None, ())
    failing = [_failing(member, notification) for member in members]
    at = min(range(len(members)), key=lambda number: len(failing[number]))
    sides = members[at].sides
    is_small = len(sides) * len(notification.attributes) <= NAMES_COMPARED_MAX
    known = notification.attributes if is_small else ()
    results = tuple(
        _result(name, each, notification, failing[at], known) for name, each in sides.items()
    )
    return MatchExplanation(not failing[at], members[at], results, len(members) - 1)


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Returns the known names that differ by case, else the shortest that end in the name, behind a
    dot, else those that differ by few letters.
    """
    folded: dict[str, list[str]] = {}
    for each in known:
        folded.setdefault(each.casefold(), []).append(each)
    asked = name.casefold()
    if by_case := folded.get(asked):
        return by_case
    inner = sorted((len(each), each) for each in folded if asked and each.endswith(f".{asked}"))
    near = [each for _, each in inner[:SIMILAR_MAX]] or difflib.get_close_matches(
        asked, folded, SIMILAR_MAX, SIMILARITY
    )
    return [each for found in near for each in folded[found]]


def asked_domains(of: ValueSet) -> list[int]:
    """Returns the domains of which a set holds values; *absent* is one of them."""
    cuts, _ = of.parts()
    found = [tag for tag in range(TEXT) if line.overlaps(cuts, line.interval((tag,), (tag + 1,)))]
    return found if (of & of_cuts(line.ALL_TEXT)).shows_empty() else [*found, TEXT]


def domain_nouns(domains: Iterable[int]) -> str:
    """Returns the nouns of domains in a sentence."""
    return " or ".join(DOMAIN_NOUNS[each] for each in domains) or "no value"


def readings(text: str) -> Iterator[Key]:
    """Yields the keys of the numbers, the truth value and the time that a text may be read as."""
    if text.lower() in _TRUTH:
        yield (BOOL, _TRUTH[text.lower()])
    for convert in (int, float, iso_time):
        with suppress(ValueError, InvalidValueError):  # It is no such value.
            yield key_of(convert(text))


def _failing(member: Filter, notification: Notification) -> dict[str, str]:
    """Returns the names of failing constraints, each with its unregistered operator or ""."""
    found: dict[str, str] = {}
    for name, each in member.sides.items():
        try:
            if not holds_one(each, notification.keys_of(name)):
                found[name] = ""
        except UnknownOperatorError as error:
            found[name] = error.operator
    return found


def _result(
    name: str,
    wanted: ValueSet,
    notification: Notification,
    failing: Mapping[str, str],
    known: Iterable[str],
) -> ConstraintResult:
    constraint = _short(str(Filter.of_sets({name: wanted})))
    if name not in failing:
        return ConstraintResult(name, constraint, True)
    keys = notification.keys_of(name)
    domains = asked_domains(wanted)
    key = next((each for each in keys if each[0] in domains), keys[0])
    several = f"; no other of its {len(keys)} values holds" if len(keys) > 1 else ""
    if failing[name]:
        cause = f"{_shown(key)} cannot be decided: operator {failing[name]!r} is not registered"
    elif key == ABSENT_KEY:
        near = " or ".join(map(repr, similar_names(name, known)))
        cause = f"{name!r} is absent" + (f", there is {near}" if near else "")
    elif not domains:
        cause = f"{_shown(key)} fails, as every value does"
    elif key[0] not in domains:
        cause = _domain_cause(key, wanted, domains)
    else:
        cause = _value_cause(key, wanted)
    return ConstraintResult(name, constraint, False, f"`{constraint}`: {cause}{several}")


def _domain_cause(key: Key, wanted: ValueSet, domains: list[int]) -> str:
    noun = "" if key[0] in (NULL, NAN) else f" is {DOMAIN_NOUNS[key[0]]}"
    cause = f"{_shown(key)}{noun}, expected {domain_nouns(domains)}"
    if key[0] == TEXT:
        text = key[1].decode(errors="replace")  # type: ignore[union-attr]
        read = [each for each in readings(text) if each[0] in domains]
        matching = next((each for each in read if wanted.holds(each)), None)
        if matching is not None:
            return f"{cause}; {_shown(matching)} would match"
        return f"{cause}; {_shown(read[0])} would not match either" if read else cause
    text_key = (TEXT, _text(key).encode())
    if TEXT in domains and wanted.text is None and wanted.holds(text_key):
        return f"{cause}; {_shown(text_key)} would match"
    return cause


def _value_cause(key: Key, wanted: ValueSet) -> str:
    shown = _shown(key)
    if key[0] == TEXT:
        near = _near_text(key[1].decode(errors="replace"), wanted)  # type: ignore[union-attr]
        return f"{shown} is outside" + (f"; {near} would match" if near else "")
    if key[0] not in (NUMBER, TIME):
        return f"{shown} is another value"
    at = bisect_right(wanted.line, key)
    around = [cut for cut in wanted.line[max(at - 1, 0) : at + 1] if len(cut) == 2]
    bounds = sorted(
        (_bound(cut) for cut in around if cut[0] == key[0]),
        key=lambda bound: abs(bound[1] - key[1]),  # type: ignore[operator]
    )
    if not bounds:
        return f"{shown} is outside"
    if bounds[0] == key:
        return f"{shown} is the bound itself, which is left out"
    side = "above" if key[1] > bounds[0][1] else "below"  # type: ignore[operator]
    return f"{shown} is {side} the nearest bound {_shown(bounds[0])}"


def _near_text(text: str, wanted: ValueSet) -> str:
    """Returns the text of the set that differs by case, by blanks around it or by few letters."""
    if wanted.unknown() or len(text) > COMPARED_CHARACTERS_MAX:
        return ""
    for each in (text.strip(), text.lower(), text.upper(), text.capitalize(), text.title()):
        if wanted.holds((TEXT, each.encode())):
            return _shown((TEXT, each.encode()))
    pieces = islice(line.pieces(line.intersection(wanted.line, line.ALL_TEXT)), TEXTS_COMPARED_MAX)
    keys = [line.single((start, end)) for start, end in pieces if end is not None]
    texts = [value_of(key) for key in keys if key is not None]
    short = [t for t in texts if isinstance(t, str) and len(t) <= COMPARED_CHARACTERS_MAX]
    near = similar_names(text, short)
    return _shown(key_of(near[0])) if near else ""


def _bound(cut: Key) -> Key:
    """Returns the bound at a cut as it was written: the value after it or before it."""
    tag, comparable = cut
    before = comparable - 1 if tag == TIME else values.predecessor(comparable)  # type: ignore[operator, arg-type]
    keys = [cut] if before is None else [cut, (tag, before)]
    return min(keys, key=lambda key: len(_text(key)))


def _text(key: Key) -> str:
    return notation.text_of(of_cuts(line.point(key))).removeprefix("= ")


def _shown(key: Key) -> str:
    return _short(_text(key))


def _short(text: str) -> str:
    return shortened(text, SHOWN_MAX)
